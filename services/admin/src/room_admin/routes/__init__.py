"""The routes under /api/v1, by what they are about."""
