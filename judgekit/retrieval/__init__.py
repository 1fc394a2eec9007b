"""Search over memories and documents: FTS5 over the stores, ranked and rated. See api.py."""
