"""Pure rules of ticks and replies."""
