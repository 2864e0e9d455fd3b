"""``room topics`` and ``room migrate``: what an installation needs before its services start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from room_cli.connection import service_environment
from room_cli.failures import FAILED, fail_of
from room_cli.options import AsJson, Directory
from room_cli.output import Column, console, print_json, show
from room_common.contracts.topics import TOPICS
from room_common.errors import RoomError
from room_common.kafka import admin
from room_common.kafka.settings import KafkaSettings
from room_common.postgres import migrate as migrations
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import ServiceSettings, load_settings


class _KafkaOnly(ServiceSettings):
    kafka: KafkaSettings


class _DatabaseOnly(ServiceSettings):
    database: DatabaseSettings


_COLUMNS = (
    Column("topic", "topic"),
    Column("partitions", "partitions", right=True),
    Column("retention", "retention"),
    Column("state", "state", wide=True),
)


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(topics)
    app.command()(migrate)


def topics(
    create: Annotated[bool, typer.Option("--create", help="Make those that are missing.")] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """The topics of Room, and what the broker has of them. Existing ones are never changed."""
    settings = load_settings(_KafkaOnly, service_environment(directory)).kafka
    try:
        made = asyncio.run(admin.create_topics(settings, TOPICS)) if create else {}
        existing = asyncio.run(admin.describe_topics(settings))
    except RoomError as error:
        fail_of(error)
    rows = []
    for topic in TOPICS:
        state = existing.get(topic.name)
        if state is None:
            said = "missing"
        elif state.partitions != topic.partitions:
            said = f"has {state.partitions} partitions; that is final, and fine if it was meant"
        else:
            said = "created" if made.get(topic.name) is admin.Outcome.CREATED else "there"
        rows.append(
            {
                "topic": topic.name,
                "partitions": topic.partitions,
                "retention": _duration(topic.retention_ms),
                "state": said,
                "description": topic.description,
            }
        )
    show(rows, _COLUMNS, as_json=as_json, empty="")
    if any(row["state"] == "missing" for row in rows):
        if not as_json:
            console.print("`room topics --create` makes the missing ones", markup=False)
        raise typer.Exit(FAILED)


def migrate(
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Bring the database's schema up to this release. Safe to run at any time, and by several at once."""
    dsn = load_settings(_DatabaseOnly, service_environment(directory)).database.dsn.get_secret_value()
    try:
        steps = migrations.migrate(dsn)
    except RoomError as error:
        fail_of(error)
    names = [step.label for step in steps]
    if as_json:
        print_json({"applied": names})
    elif names:
        console.print(f"applied: {', '.join(names)}", markup=False)
    else:
        console.print("the schema is up to date", markup=False)


def _duration(milliseconds: int) -> str:
    minutes = milliseconds // 60_000
    return f"{minutes // 1440} d" if minutes >= 1440 else f"{minutes} min"
