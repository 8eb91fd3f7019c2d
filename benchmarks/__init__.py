"""Measurements that anyone can repeat: ``python -m benchmarks.NAME``; the last line printed is one JSON object."""
