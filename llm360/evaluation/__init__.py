"""Evaluation: benchmarks without the network, the bridge to lm-eval, result rows."""
