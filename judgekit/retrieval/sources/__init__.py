"""How each kind of store is read: one module a kind, all of the same shape (see base.py)."""
