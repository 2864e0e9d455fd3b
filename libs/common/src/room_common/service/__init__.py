"""The frame every service runs in."""
