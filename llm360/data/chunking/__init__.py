"""From documents to chunks, out of core: rows packed, mixed, shuffled and cut."""
