"""``room overflow``: what waits in PostgreSQL for Kafka."""

from __future__ import annotations

from pathlib import Path

import typer

from room_cli.connection import connect
from room_cli.options import AsJson, Directory
from room_cli.output import console, print_json


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(overflow)


def overflow(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Webhooks that were answered 200 and are not in Kafka yet, since it did not answer."""
    found = connect(directory).get("/overflow")
    if as_json:
        print_json(found)
    elif not found["rows"]:
        console.print("nothing waits for Kafka", markup=False, soft_wrap=True)
    else:
        size, age = found["bytes"] / 2**20, found["oldest_seconds"] or 0.0
        console.print(
            f"{found['rows']:,} records wait for Kafka: {size:,.1f} MiB, the oldest for {age:,.0f} s",
            markup=False,
            soft_wrap=True,
        )
