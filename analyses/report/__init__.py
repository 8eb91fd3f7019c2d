"""The report: one self-contained page about everything that the pipeline built."""
