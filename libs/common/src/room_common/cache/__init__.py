"""Redis: what may be forgotten."""
