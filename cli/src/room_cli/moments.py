"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

from room_cli.failures import WRONG_INPUT, fail


def moment_of(text: str, option: str) -> datetime:
    """A time with its offset from UTC. Ends the command for anything else."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            fail(f"{option} needs its offset from UTC, like 2026-11-30T14:00:00+00:00", WRONG_INPUT)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        fail(f"{option} is a time like 2026-11-30T14:00:00+00:00", WRONG_INPUT)


def since_of(text: str | None) -> str | None:
    """``--since`` as the API takes it."""
    return None if text is None else moment_of(text, "--since").isoformat()
