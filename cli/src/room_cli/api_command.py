"""``room api``: any call of the API, for what has no command of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from room_cli.connection import connect
from room_cli.failures import WRONG_INPUT, fail
from room_cli.options import Directory
from room_cli.output import print_json

_MAX_BYTES = 1 << 20
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command("api")(call)


def call(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"{', '.join(_METHODS)}.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Below /api/v1, like /instances/desk/prompts.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="JSON", help="The body; @FILE reads a file, @- the input.")
    ] = None,
    if_match: Annotated[
        str | None, typer.Option("--if-match", metavar="ETAG", help="Only if it is still that version.")
    ] = None,
    directory: Directory = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Does nothing: the answer is JSON in any case.")] = True,
) -> None:
    """Call the API and print its answer. contracts/openapi.json lists every route with its body."""
    if method.upper() not in _METHODS or not path.startswith("/"):
        fail("write it like `room api get /instances`", WRONG_INPUT)
    headers = {} if if_match is None else {"If-Match": if_match}
    print_json(connect(directory).call(method.upper(), path, None if data is None else _body(data), headers))


def _body(data: str) -> Any:
    try:
        if data == "@-":
            data = sys.stdin.read(_MAX_BYTES)
        elif data.startswith("@"):
            data = Path(data[1:]).read_text(encoding="utf-8")
        return json.loads(data)
    except OSError as error:
        fail(f"{data[1:]} can't be read ({error.strerror})", WRONG_INPUT)
    except ValueError:
        fail("the body is not JSON", WRONG_INPUT)
