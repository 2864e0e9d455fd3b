"""The ``room`` command. Each module of commands adds its own to the app."""

from __future__ import annotations

import typer

from room_cli import stack_commands

app = typer.Typer(
    name="room",
    help="Webhooks in, decisions by rooms of agents, messages out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
stack_commands.register(app)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
