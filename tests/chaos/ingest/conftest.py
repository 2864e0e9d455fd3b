"""Fixtures of ingest as a process."""

from __future__ import annotations

from room_testing.ingest_process import make_ingest, overflow_dsn, tokens

__all__ = ["make_ingest", "overflow_dsn", "tokens"]
