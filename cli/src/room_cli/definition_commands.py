"""``room definitions``: the rules of every room, their order, and trying one on what came in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from room_cli.completion import source_names
from room_cli.connection import connect
from room_cli.definition_file import read_definition
from room_cli.failures import WRONG_INPUT, fail
from room_cli.lookup import end_of_id, find_source, in_rooms
from room_cli.options import AsJson, DefinitionNames, Directory, RoomName, SourceArgument
from room_cli.output import Column, clock, console, one_line, print_json, show
from room_common.errors import ConfigurationError

_DEFINITIONS = (
    Column("room", "room", spare=1),
    Column("source", "source"),
    Column("definition", "name"),
    Column("order", "priority", right=True, spare=3),
    Column("version", "version", right=True, spare=4),
    Column("enabled", "enabled", lambda value: "yes" if value else "no", spare=2),
    Column("matches", "match", wide=True),
)
_TESTED = (
    Column("received", "received_at", clock, spare=2),
    Column("id", "id"),
    Column("was", "outcome", spare=1),
    Column("before", "before", lambda value: "-" if value is None else str(value)),
    Column("now", "after", lambda value: "-" if value is None else str(value)),
    Column("why", "why", wide=True),
)

_TEST_SECONDS: Final = 180.0
_MAX_SAMPLE: Final = 65_536


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    definitions = typer.Typer(help="The rules of every room.", invoke_without_command=True)
    definitions.callback()(list_definitions)
    definitions.command("test")(test)
    definitions.command("order")(order)
    app.add_typer(definitions, name="definitions")


def list_definitions(
    context: typer.Context, room: RoomName = None, directory: Directory = Path(), as_json: AsJson = False
) -> None:
    """The rules of every room, in the order they are asked."""
    if context.invoked_subcommand is not None:
        return
    rows = in_rooms(connect(directory), room, "definitions")
    show(rows, _DEFINITIONS, as_json=as_json, empty="no definitions: `room apply -f room.yaml` makes some")


def order(
    source: SourceArgument,
    names: DefinitionNames,
    room: RoomName = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Put a source's definitions in order. The next `room apply` goes by the priorities in its file again."""
    api = connect(directory)
    found = find_source(api, source, room)
    rows = [row for row in in_rooms(api, found["room"], "definitions") if row["source"] == source]
    ids = {row["name"]: row["id"] for row in rows}
    if sorted(names) != sorted(ids):
        fail(f"name each of its definitions once: {', '.join(ids) or 'it has none'}", WRONG_INPUT)
    answer = api.put(f"/sources/{found['id']}/definitions/order", {"definitions": [ids[name] for name in names]})
    if as_json:
        print_json(answer)
    else:
        console.print(one_line(f"{source} asks: {', '.join(names)}"), markup=False, soft_wrap=True)


def test(
    file: Annotated[Path, typer.Option("--file", "-f", help="The definition, as it stands in a room file.")],
    source: Annotated[
        str,
        typer.Option(
            "--source",
            "-s",
            metavar="SOURCE",
            help="The source whose deliveries are asked about.",
            autocompletion=source_names,
        ),
    ],
    last: Annotated[
        int | None, typer.Option("--last", "-n", min=1, max=500, metavar="ROWS", help="So many deliveries (100).")
    ] = None,
    payload: Annotated[
        Path | None, typer.Option("--payload", "-p", help="Ask about this file instead.", exists=True, dir_okay=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every verdict, not only those that change.")] = False,
    room: RoomName = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Ask a new or changed definition about what came in, and show which verdicts would change. Decides nothing."""
    if last is not None and payload is not None:
        fail("say either --last or --payload", WRONG_INPUT)
    try:
        definition = read_definition(file)
    except ConfigurationError as error:
        fail(str(error), WRONG_INPUT)
    body: dict[str, Any] = {
        "definition": definition.model_dump(mode="json"),
        "source": source,
        "room": room,
        "last": last,
        "sample": None if payload is None else {"body": _sample(payload)},
    }
    answer = connect(directory).post("/definitions/test", body, seconds=_TEST_SECONDS)
    if as_json:
        print_json(answer)
        return
    rows = [_row(row) for row in answer["items"] if everything or payload is not None or row["changed"]]
    if rows:
        show(rows, _TESTED, as_json=False, empty="")
    console.print(_summary(answer), markup=False, soft_wrap=True)
    if answer["stopped"] is not None:
        console.print(one_line(f"it did not come to the end ({answer['stopped']})"), markup=False, soft_wrap=True)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    name = "sample" if row["delivery_id"] is None else end_of_id(row["delivery_id"])
    return row | {"id": f"{name}/{row['item']}" if row["item"] else name, "why": row["why"] or row["error"]}


def _summary(answer: dict[str, Any]) -> str:
    parts = [f"{answer['changed']} of {answer['tested']} verdicts change"]
    if answer["unreadable"]:
        parts.append(f"{answer['unreadable']} payloads are gone or can't be decoded")
    if answer["failed"]:
        parts.append(f"{answer['failed']} were refused by the model")
    cost = f"{answer['calls']} calls, {answer['input_tokens']} + {answer['output_tokens']} tokens"
    if answer["cached_tokens"]:
        cost += f" ({answer['cached_tokens']} of them cached)"
    return "; ".join([*parts, f"{cost}, {answer['seconds']:.1f} s"])


def _sample(file: Path) -> str:
    with file.open("rb") as opened:
        raw = opened.read(_MAX_SAMPLE + 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        fail(f"{file} is not UTF-8 text", WRONG_INPUT)
    if len(raw) > _MAX_SAMPLE:
        fail(f"{file} is larger than {_MAX_SAMPLE} bytes, and so would never be taken", WRONG_INPUT)
    return text
