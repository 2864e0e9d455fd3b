"""``room deliveries``: what came in, its life, its payload, and sending it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from room_cli.connection import Api, connect
from room_cli.delivery_timeline import timeline
from room_cli.failures import FAILED
from room_cli.lookup import end_of_id, find_id
from room_cli.moments import since_of
from room_cli.options import AsJson, Directory, RoomName, Rows, Since, SourceName
from room_cli.output import Column, clock, console, print_json, print_timeline, show
from room_cli.payload import Raw, print_payload
from room_common.domain.deliveries import OUTCOMES

_DELIVERIES = (
    Column("received", "received_at", clock),
    Column("room", "room", spare=4),
    Column("source", "source", spare=1),
    Column("outcome", "outcome"),
    Column("definition / reason", "why", wide=True),
    Column("calls", "llm_calls", right=True, spare=2),
    Column("tokens", "tokens", right=True, spare=3),
    Column("id", "id", end_of_id),
)

DeliveryArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The delivery's id or its end as `room deliveries` shows it, or `last`.")
]
ItemOption = Annotated[
    int | None, typer.Option("--item", min=0, max=99, metavar="NUMBER", help="One item of a delivery that was split.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    deliveries = typer.Typer(help="What came in, and what became of it.", invoke_without_command=True)
    deliveries.callback()(list_deliveries)
    deliveries.command("show")(show_delivery)
    deliveries.command("payload")(show_payload)
    deliveries.command("replay")(replay)
    app.add_typer(deliveries, name="deliveries")


def list_deliveries(
    context: typer.Context,
    room: RoomName = None,
    source: SourceName = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            "-o",
            metavar="OUTCOME",
            help="Only this outcome.",
            autocompletion=lambda incomplete: [one for one in OUTCOMES if one.startswith(incomplete)],
        ),
    ] = None,
    since: Since = None,
    last: Rows = 30,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Every item of every delivery, and what became of it."""
    if context.invoked_subcommand is not None:
        return
    rows = connect(directory).items(
        "/deliveries", last, room=room, source=source, outcome=outcome, since=since_of(since)
    )
    shown = rows if as_json else [row | {"why": row["definition"] or row["reason"]} for row in rows]
    show(shown, _DELIVERIES, as_json=as_json, empty="no deliveries yet: `room sources --reveal` shows where to post")


def show_delivery(delivery: DeliveryArgument, directory: Directory = Path(), as_json: AsJson = False) -> None:
    """The life of a delivery: checks, verdicts, event, cycles, tool calls, messages, replays."""
    api = connect(directory)
    life = api.get(f"/deliveries/{_delivery_id(api, delivery)}/life")
    if as_json:
        print_json(life)
    else:
        print_timeline(timeline(life))


def show_payload(
    delivery: DeliveryArgument,
    item: ItemOption = None,
    raw: Raw = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """The payload of a delivery as a model sees it, read back from Kafka. This is audited."""
    api = connect(directory)
    payload = api.get(f"/deliveries/{_delivery_id(api, delivery)}/payload", item=item)
    print_payload(payload, raw=raw, as_json=as_json)


def replay(
    deliveries: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, or their ends, or `last`.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also what had a wrong signature or an unknown URL; it goes on unverified.")
    ] = False,
    item: ItemOption = None,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Send deliveries again, under new ids: whatever their age, and though they are duplicates. This is audited."""
    api = connect(directory)
    done: list[dict[str, Any]] = []
    failed = False
    for word in deliveries:
        try:
            delivery_id = _delivery_id(api, word)
            answer = api.post(f"/deliveries/{delivery_id}/replay", {"force": force, "item": item})
        except typer.Exit:  # the message is out; the others are tried all the same
            failed = True
            continue
        done.append(answer)
        if not as_json:
            console.print(f"{answer['replay_of']} is sent again as {answer['id']}", markup=False, soft_wrap=True)
    if as_json:
        print_json(done)
    if failed:
        raise typer.Exit(FAILED)


def _delivery_id(api: Api, word: str) -> str:
    return find_id(api, word, path="/deliveries", what="delivery")
