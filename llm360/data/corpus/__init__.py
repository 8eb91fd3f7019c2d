"""Corpora of any size: declared, read file by file, written as documents."""
