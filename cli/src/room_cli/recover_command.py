"""``room recover``: after a failover of PostgreSQL that lost commits (docs/architecture.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from room_cli.connection import service_environment
from room_cli.failures import fail_of
from room_cli.moments import moment_of
from room_cli.options import AsJson, Directory
from room_cli.output import Column, console, print_json, show
from room_common.contracts.topics import INTAKE_GROUPS
from room_common.errors import RoomError
from room_common.kafka.rewind import Rewound, rewind
from room_common.kafka.settings import KafkaSettings
from room_common.postgres import leases
from room_common.postgres.database import Database
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import ServiceSettings, load_settings


class _Both(ServiceSettings):
    kafka: KafkaSettings
    database: DatabaseSettings


_COLUMNS = (
    Column("topic", "topic", wide=True),
    Column("partition", "partition", right=True),
    Column("was at", "before", right=True),
    Column("is at", "after", right=True),
)


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(recover)


def recover(
    since: Annotated[str, typer.Option("--since", help="Before the failover: a time with its offset from UTC.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be read again.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Fence every worker, and read what came in since a time again. Stop matcher and scheduler first.

    Safe to repeat: what was decided already is known by its id and decided no second time.
    """
    moment = moment_of(since, "--since")
    settings = load_settings(_Both, service_environment(directory))
    try:
        held, rewound = asyncio.run(_recover(settings, moment, dry_run=dry_run))
    except RoomError as error:
        fail_of(error)
    rows = [
        {"topic": one.topic, "partition": one.partition, "before": one.before, "after": one.after} for one in rewound
    ]
    if as_json:
        print_json({"fenced": held, "rewound": rows})
        return
    show(rows, _COLUMNS, as_json=False, empty="no partition has records since then that were read already")
    if dry_run:
        console.print("nothing was changed: --dry-run", markup=False)
    else:
        console.print(f"{held} cycle(s) under way were fenced; start matcher and scheduler again", markup=False)


async def _recover(settings: _Both, since: datetime, *, dry_run: bool) -> tuple[int, Sequence[Rewound]]:
    held = 0
    rewound: list[Rewound] = []
    for topic, group in INTAKE_GROUPS.items():
        rewound += await rewind(settings.kafka, group, [topic], since, dry_run=dry_run)
    if not dry_run:
        database = Database(settings.database, application_name="room-recover")
        await database.start()
        try:
            async with database.transaction() as conn:
                held = await leases.fence_all(conn)
        finally:
            await database.stop()
    return held, rewound
