"""Printing what came in."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from room_cli.failures import FAILED, fail
from room_cli.output import one_line, print_json

Raw = Annotated[bool, typer.Option("--raw", help="The bytes as they were received, and nothing else.")]


def print_payload(payload: Mapping[str, Any], *, raw: bool, as_json: bool) -> None:
    """A payload of the API: decoded, or its bytes, or all that is known of it."""
    if raw:
        sys.stdout.buffer.write(base64.b64decode(payload["raw"]))
        sys.stdout.buffer.flush()
    elif as_json:
        print_json(payload)
    elif payload["reason"] is not None:
        fail(f"it can't be decoded ({payload['reason']}); --raw shows the bytes", FAILED)
    else:
        print_json(payload["decoded"])
        for change in payload["changes"]:
            typer.echo(one_line(f"changed to be shown: {change}"), err=True)
