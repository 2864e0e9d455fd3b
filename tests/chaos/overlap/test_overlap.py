"""A small run of the overlap checker; ``make overlap`` is the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from room_testing.overlap.checks import violations
from room_testing.overlap.world import Plan, Run
from room_testing.parts import Parts

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


async def test_twenty_rooms_under_faults(
    room_parts: Parts, database_dsn: str, kafka_bootstrap: str, kafka_idempotence: bool, tmp_path: Path
) -> None:
    """The database is restarted where it is ours; the broker, which other tests share, is left alone."""
    postgres = room_parts.postgres() if room_parts.choice.starts_database else None
    plan = Plan(seed=20, rooms=20, runners=2, seconds=40.0, quick=True)
    run = Run(
        plan, database_dsn, kafka_bootstrap, tmp_path, idempotence=kafka_idempotence, postgres=postgres, broker=None
    )
    try:
        await run.run()
    finally:
        run.history.save(tmp_path / "history.json")
    assert violations(run.history, aftermath=10.0) == []
    assert run.history.faults and run.history.events
