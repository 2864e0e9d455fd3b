"""The room command."""
