"""Walks each delivery through the cascade and asks a fast model what it matches."""
