"""The matcher's own rules, free of I/O."""
