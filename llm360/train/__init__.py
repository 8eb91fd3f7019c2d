"""Pretraining: schedule, loop, ledger, metrics. The loop is one screen; all phases of all suites use it."""
