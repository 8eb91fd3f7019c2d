"""Replay: making a checkpoint again from what it names, comparing, and saying what is different."""
