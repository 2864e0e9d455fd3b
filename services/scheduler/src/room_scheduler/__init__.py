"""Emits ticks for rooms with work and takes human replies."""
