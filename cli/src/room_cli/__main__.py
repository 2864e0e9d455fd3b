"""The ``room`` command. Each module of commands adds its own to the app."""

from __future__ import annotations

from typing import Annotated

import typer

from room_cli import (
    access_commands,
    api_command,
    apply_command,
    change_commands,
    compact_command,
    definition_commands,
    delivery_commands,
    list_commands,
    overflow_command,
    overview_commands,
    reconcile_command,
    recover_command,
    room_commands,
    send_command,
    setup_commands,
    stack_commands,
    talk_commands,
    watch_command,
)
from room_cli.demo import command as demo_command
from room_cli.doctor import command as doctor_command
from room_common.telemetry.metrics import room_version


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"room {room_version()}")
        raise typer.Exit


app = typer.Typer(
    name="room",
    help="Webhooks in, decisions by rooms of agents, messages out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (
    stack_commands,
    demo_command,
    doctor_command,
    apply_command,
    send_command,
    delivery_commands,
    list_commands,
    definition_commands,
    overview_commands,
    watch_command,
    overflow_command,
    talk_commands,
    change_commands,
    room_commands,
    access_commands,
    api_command,
    reconcile_command,
    recover_command,
    setup_commands,
    compact_command,
):
    commands.register(app)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Webhooks in, decisions by rooms of agents, messages out."""


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
