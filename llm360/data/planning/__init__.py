"""What a mixture will need, before any work."""
