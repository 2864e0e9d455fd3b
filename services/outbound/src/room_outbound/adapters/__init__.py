"""The far ends of channels."""
