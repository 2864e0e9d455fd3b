"""Pure rules of aging and of what a run came to."""
