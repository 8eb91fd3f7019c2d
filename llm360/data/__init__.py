"""Sources to documents to token rows to chunks, each step provable."""
