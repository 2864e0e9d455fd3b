"""``room reconcile``: which deliveries of a time have no outcome, though they should."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from room_cli.connection import service_environment
from room_cli.failures import FAILED, WRONG_INPUT, fail, fail_of
from room_cli.options import AsJson, Directory
from room_cli.output import Column, clock, console, print_json, show
from room_common.errors import RoomError
from room_common.kafka.settings import KafkaSettings
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_common.reconciliation import Missing, reconciler
from room_common.settings import ServiceSettings, load_settings

NAMED: Final = 10_000
"""Missing deliveries that are named; more are counted."""

_UNITS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = timedelta(days=7)
_COLUMNS = (
    Column("delivery", "id"),
    Column("written", "written_at", clock),
    Column("topic", "topic"),
    Column("partition", "partition", right=True),
    Column("offset", "offset", right=True),
    Column("lacks", "lacks", wide=True),
)


class _Both(ServiceSettings):
    kafka: KafkaSettings
    database: DatabaseSettings


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(reconcile)


def reconcile(
    window: Annotated[str, typer.Option("--window", help="How far back: 90s, 30m, 1h, 7d.")] = "1h",
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Compare Kafka with the ledger, record by record, and name what the matcher passed without an outcome.

    Exit code 1 when something is missing. Nothing is changed; deliveries that still wait are not missing.
    """
    length = _length(window)
    settings = load_settings(_Both, service_environment(directory))
    try:
        missing, number, checked = asyncio.run(_compare(settings, length))
    except RoomError as error:
        fail_of(error)
    rows = [_row(one) for one in missing]
    if as_json:
        print_json({"window_seconds": length.total_seconds(), "checked": checked, "count": number, "missing": rows})
    else:
        total = f"{sum(checked.values()):,} records compared"
        show(rows, _COLUMNS, as_json=False, empty=f"nothing is missing: {total}")
        if number:
            console.print(f"{number:,} missing, {total}", markup=False, soft_wrap=True)
    if number:
        raise typer.Exit(FAILED)


async def _compare(settings: _Both, length: timedelta) -> tuple[list[Missing], int, dict[str, int]]:
    database = Database(settings.database, application_name="room-reconcile")
    await database.start()
    try:
        named: list[Missing] = []
        number = 0
        async with reconciler(settings.kafka, database, datetime.now(UTC) - length) as compared:
            async for missing in compared.compare():
                number += 1
                if len(named) < NAMED:
                    named.append(missing)
            return named, number, dict(compared.checked)
    finally:
        await database.stop()


def _row(missing: Missing) -> dict[str, Any]:
    items = None if missing.items is None else list(missing.items)
    return {
        "id": str(missing.id),
        "written_at": missing.written_at.isoformat(),
        "topic": missing.topic,
        "partition": missing.partition,
        "offset": missing.offset,
        "items": items,
        "lacks": "every row" if items is None else f"items {', '.join(map(str, items))}",
    }


def _length(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    length = timedelta(seconds=int(found[1]) * _UNITS[found[2]]) if found else timedelta(0)
    if not timedelta(0) < length <= _LONGEST:
        fail("--window is a length like 90s, 30m, 1h or 7d, at most 7d: so long Kafka keeps the records", WRONG_INPUT)
    return length
