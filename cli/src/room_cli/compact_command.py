"""``room compact``: the daily upkeep of the database, now, or what it would do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from room_cli.connection import service_environment
from room_cli.failures import FAILED, fail, fail_of
from room_cli.options import AsJson, Directory
from room_cli.output import Column, console, print_json, show
from room_common.errors import RoomError
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.postgres.settings import DatabaseSettings
from room_common.postgres.upkeep import KINDS, Pace, Upkeep
from room_common.settings import ServiceSettings, load_settings

_COUNT_SECONDS: Final = 600.0
_COLUMNS = (Column("rows", "kind", wide=True), Column("number", "number", right=True))
_MEANINGS: Final[Mapping[str, str]] = {
    "partitions_made": "partitions of the delivery ledger, made",
    "partitions_dropped": "partitions of the delivery ledger, dropped",
    "daily": "daily activity, into weeks",
    "weekly": "weekly activity, into months",
    "monthly": "monthly activity, deleted",
    "deliveries": "deliveries outside of partitions, deleted",
    "instances": "deleted rooms and what belonged to them, deleted",
}


class _DatabaseOnly(ServiceSettings):
    database: DatabaseSettings


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(compact)


def compact(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many rows are due.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Sum up old activity and delete what is too old. The compactor does it once a day; both may run at once.

    A dry run counts what is due now. Weekly rows that only come up through this run are not in it, and of deleted
    rooms it counts the rooms.
    """
    settings = load_settings(_DatabaseOnly, service_environment(directory)).database
    try:
        counted, failures = asyncio.run(_count(settings) if dry_run else _work(settings))
    except RoomError as error:
        fail_of(error)
    if as_json:
        print_json({"dry_run": dry_run, "rows": counted, "failures": failures})
    else:
        rows = [
            {"kind": _MEANINGS.get(kind, f"{kind.replace('_', ' ')}, deleted"), "number": f"{counted[kind]:,}"}
            for kind in KINDS
            if counted.get(kind)
        ]
        show(rows, _COLUMNS, as_json=False, empty="nothing is due")
        if dry_run and rows:
            console.print("nothing was changed", markup=False)
    if failures:
        fail(f"{failures} could not be worked on and were passed over; the log of the compactor says more", FAILED)


async def _count(settings: DatabaseSettings) -> tuple[dict[str, int], int]:
    # To count may mean to read whole tables.
    patient = settings.model_copy(
        update={"statement_timeout": _COUNT_SECONDS, "transaction_timeout": _COUNT_SECONDS, "pool_max": 1}
    )
    async with _connected(patient) as database:
        return await Upkeep(database, Pace(), pause=_pause, counted=lambda kind, rows: None).count_due(), 0


async def _work(settings: DatabaseSettings) -> tuple[dict[str, int], int]:
    counted: Counter[str] = Counter()
    async with _connected(settings) as database:
        upkeep = Upkeep(database, Pace(), pause=_pause, counted=lambda kind, rows: counted.update({kind: rows}))
        results = [await upkeep.partitions(), await upkeep.age(await upkeep.today()), await upkeep.retain()]
    return dict(counted), sum(result.failures for result in results)


@asynccontextmanager
async def _connected(settings: DatabaseSettings) -> AsyncIterator[Database]:
    """The database, once its schema is known to be this release's."""
    database = Database(settings, application_name="room-compact")
    try:
        await database.start()
        await SchemaGate(database).start()
        yield database
    finally:
        await database.stop()


async def _pause(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True
