"""Runs supervisor cycles under a lease and fills the outbox."""
