"""Requests to addresses that others chose: where they may go, and one client that keeps to it."""
