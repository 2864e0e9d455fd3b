"""Delivers outbound messages to people."""
