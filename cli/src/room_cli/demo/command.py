"""The demo's course: start everything, send, watch, answer, sum up, stop everything."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

import httpx
import typer
from rich.console import Console

from room_cli.apply_command import request_body
from room_cli.connection import Api
from room_cli.demo import scenario, summary
from room_cli.demo.observer import Observer, TickWatcher
from room_cli.demo.scenario import Delivery
from room_cli.demo.summary import Check
from room_cli.demo.timeline import Timeline
from room_cli.room_file import read_room_file
from room_cli.send_command import Post, build, deliver, with_new_ids
from room_cli.stack_commands import print_event, stopping_signals
from room_cli.talk_commands import Mailbox
from room_local.options import StackOptions
from room_local.status import StackStatus, status

_WAIT_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 2.0
_UNKNOWN: Final = re.compile(
    r'^room_ingest_answers_total\{[^}]*answer="unknown_token"[^}]*\} ([0-9.e+]+)$', re.MULTILINE
)

console = Console(highlight=False, emoji=False)


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end, until Ctrl-C.")] = False,
) -> None:
    """Show the whole path once, with real processes. Ends by itself; exit 0 exactly if all went as it should."""
    folder = Path(tempfile.mkdtemp(prefix="room-demo-"))
    try:
        with _stack(folder):
            good = _Demo(folder).run()
            if keep:
                _stay(folder)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(
        "[bold green]All as it should be.[/]" if good else "[bold red]Something went wrong, see WRONG above.[/]"
    )
    raise typer.Exit(0 if good else 1)


@contextmanager
def _stack(folder: Path) -> Iterator[None]:
    from room_local.stack import Stack  # late: it loads the clients of everything

    stack = Stack(folder, StackOptions(tick_seconds=_TICK_SECONDS), print_event)
    with stopping_signals():
        try:
            console.rule("Starting real processes: PostgreSQL, Redis, a Kafka broker and every service")
            stack.up()
            yield
        finally:
            stack.down()


class _Demo:
    def __init__(self, folder: Path) -> None:
        found = status(folder)
        self._folder = folder
        self._status: StackStatus = found
        assert found.token_file is not None
        self._token = Path(found.token_file).read_text().strip()
        self._api = Api(found.urls["admin"], self._token)
        self._secrets = {variable: secrets.token_hex(24) for variable in scenario.SECRETS.values()}
        self._sent: dict[str, Post] = {}
        self._checks: list[Check] = []

    def run(self) -> bool:
        """The whole course; whether everything was as it should be."""
        console.print()
        self._introduce()
        urls = self._apply()
        console.rule("Webhooks go in over HTTP, and this is what becomes of them")
        timeline = Timeline(console)
        observer = Observer(self._api, timeline)
        ticks = TickWatcher(self._kafka(), timeline)
        ticks.start()
        observer.start()
        try:
            self._send_all(urls, timeline)
            self._await("decisions", observer, self._all_decided)
            self._await("work done", observer, self._all_done)
            self._answer(timeline, observer)
        finally:
            observer.stop()
            ticks.stop()
        return self._sum_up(observer, ticks)

    def _introduce(self) -> None:
        urls = self._status.urls
        console.print(
            f"API        {urls['admin']}/api/v1   (token: {self._status.token_file})", markup=False, soft_wrap=True
        )
        console.print(f"Panel      {urls['admin']}/panel/   (sign in with that token)", markup=False, soft_wrap=True)
        console.print(f"Webhooks   {urls['ingest']}/webhooks/...", markup=False, soft_wrap=True)
        console.print(
            f"Inbox      {urls['inbox']}   the page of the person the agent talks to", markup=False, soft_wrap=True
        )
        if "rehearsal" in urls:
            console.print(
                f"Model      {urls['rehearsal']}   a rehearsal with scripted answers, no language model",
                markup=False,
                soft_wrap=True,
            )
        else:
            console.print("Model      the provider that your ROOM_LLM__ settings name", markup=False, soft_wrap=True)
        console.print(f"The tick runs every {_TICK_SECONDS:g} s here (30 s by default).", markup=False, soft_wrap=True)

    def _apply(self) -> dict[str, str]:
        room_file = read_room_file(scenario.example_folder() / "room.yaml", self._secrets | dict(os.environ))
        answer = self._api.post("/apply", request_body(room_file, dry_run=False))
        made = sum(change["action"] == "create" for change in answer["changes"])
        console.print(f"Applied examples/{scenario.ROOM}/room.yaml: {made} things made.\n", markup=False)
        return {url["name"]: url["url"] for url in answer["urls"] if url["kind"] == "source"}

    def _send_all(self, urls: dict[str, str], timeline: Timeline) -> None:
        wrong = []
        for delivery in scenario.DELIVERIES:
            if delivery.repeats is not None:
                # The first copy must be decided before: only then is the second one a duplicate and not a rival.
                time.sleep(1.0)
            answer = deliver(self._post(delivery, urls))
            timeline.add("HTTP", f"{answer.status_code} {answer.text:<12} {delivery.source:<15} {delivery.title}")
            if answer.status_code != httpx.codes.OK or answer.json() != delivery.answer:
                wrong.append(delivery.title)
        self._checks.append(Check("every request got its answer", "all", "all" if not wrong else ", ".join(wrong)))

    def _post(self, delivery: Delivery, urls: dict[str, str]) -> Post:
        if delivery.repeats is not None:
            return self._sent[delivery.repeats]
        body = delivery.payload
        if isinstance(body, str):
            body = with_new_ids(delivery.kind, (scenario.example_folder() / "payloads" / body).read_bytes())
        url = urls[delivery.source]
        if delivery.unknown_token:
            url = url.rpartition("/")[0] + "/" + secrets.token_hex(32)
        secret = self._secrets[scenario.SECRETS[delivery.source]]
        post = build(
            delivery.kind,
            url,
            body,
            secret=(secret if delivery.signature == "right" else secrets.token_hex(24)).encode(),
            event=delivery.event,
            extra={},
            form=delivery.form,
            now=time.time(),
            delivery=str(uuid4()),
        )
        self._sent[delivery.title] = post
        return post

    def _await(self, what: str, observer: Observer, done: Callable[[Observer], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not done(observer):
            if observer.failure is not None:
                raise observer.failure
            if time.monotonic() > deadline:
                self._checks.append(Check(what, f"within {_WAIT_SECONDS:.0f} s", "not yet"))
                return
            time.sleep(0.2)

    def _all_decided(self, observer: Observer) -> bool:
        return observer.outcomes.total() >= scenario.expected_outcomes().total()

    def _all_done(self, observer: Observer) -> bool:
        matched = scenario.expected_outcomes()["matched"]
        completed = sum(row["status"] == "completed" for row in observer.backlog)
        quiet = all(row["status"] == "sent" for row in observer.messages)
        idle = all(row["status"] != "running" for row in observer.cycles)
        return completed >= matched and bool(observer.messages) and quiet and idle

    def _answer(self, timeline: Timeline, observer: Observer) -> None:
        timeline.add("reply", f"the person answers: {scenario.ANSWER}")
        before = len(observer.messages)
        Mailbox(self._api, scenario.ROOM).answer(scenario.ANSWER)
        self._await(
            "an answer to the reply", observer, lambda seen: len(seen.messages) > before and self._all_done(seen)
        )

    def _sum_up(self, observer: Observer, ticks: TickWatcher) -> bool:
        console.print()
        for outcome, expected in sorted(scenario.expected_outcomes().items()):
            self._checks.append(Check(f"outcome {outcome}", str(expected), str(observer.outcomes[outcome])))
        others = observer.outcomes - scenario.expected_outcomes()
        completed = sum(row["status"] == "completed" for row in observer.backlog)
        matched = scenario.expected_outcomes()["matched"]
        replies = [row["status"] for row in observer.inbox]
        after_reply = [cycle for cycle in observer.cycles if cycle["replies"]]
        self._checks += [
            Check("other outcomes", "0", str(others.total())),
            Check("unknown token: counted, not recorded", "1", str(self._unknown_tokens())),
            Check("events completed by a cycle", str(matched), str(completed)),
            Check("every cycle succeeded", "yes", _yes(all(row["status"] == "succeeded" for row in observer.cycles))),
            Check("a tick woke the room", "yes", _yes(any(tick.reason == "pending" for tick in ticks.seen))),
            Check("the reply woke the room at once", "yes", _yes(any(tick.reason == "reply" for tick in ticks.seen))),
            Check("the reply was read in one cycle", "read, 1", f"{', '.join(replies)}, {len(after_reply)}"),
            Check("messages sent = delivered, each once", str(len(observer.messages)), self._delivered(observer)),
        ]
        good = summary.show_checks(console, self._checks)
        console.print()
        summary.show_costs(console, self._api.get("/stats", room=scenario.ROOM), observer.cycles)
        summary.show_times(console, observer.backlog, observer.messages)
        summary.show_memory(console, status(self._folder))
        console.print()
        return good

    def _unknown_tokens(self) -> int:
        process = next(one for one in self._status.processes if one.name == "ingest")
        text = httpx.get(f"http://127.0.0.1:{process.operations_port}/metrics", timeout=5.0, trust_env=False).text
        return int(sum(float(value) for value in _UNKNOWN.findall(text)))

    def _delivered(self, observer: Observer) -> str:
        inbox: dict[str, Any] = httpx.get(
            f"{self._status.urls['inbox']}/v1/messages", params={"room": scenario.ROOM}, timeout=5.0, trust_env=False
        ).json()
        delivered = [row["id"] for row in inbox["messages"]]
        sent = [row["id"] for row in observer.messages if row["status"] == "sent"]
        return str(len(sent)) if sorted(delivered) == sorted(sent) else f"{len(sent)} sent, {len(delivered)} delivered"

    def _kafka(self) -> str:
        kafka = next(one for one in self._status.processes if one.name.startswith("kafka"))
        return f"127.0.0.1:{kafka.port}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _stay(folder: Path) -> None:
    console.print(
        f"Still running. In another terminal: room -h, with --directory {folder}. Ctrl-C ends it.",
        markup=False,
        soft_wrap=True,
    )
    while True:
        time.sleep(1.0)
