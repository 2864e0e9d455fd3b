"""Watches a running stack through its API and its topics, and tells the timeline."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from room_cli.connection import Api
from room_cli.demo.timeline import Timeline
from room_cli.output import counted
from room_common.contracts import topics
from room_common.contracts.messages import TickCommand, read
from room_common.errors import DeadLetter

_POLL_SECONDS: Final = 0.25


class Observer:
    """Polls the lists and tells what is new. All it knows can be asked for at the end."""

    def __init__(self, api: Api, timeline: Timeline) -> None:
        self._api = api
        self._timeline = timeline
        self._known: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.deliveries: list[dict[str, Any]] = []
        self.backlog: list[dict[str, Any]] = []
        self.cycles: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.inbox: list[dict[str, Any]] = []
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, then end."""
        self._stop.set()
        self._thread.join(10)

    @property
    def outcomes(self) -> Counter[str]:
        """Outcomes recorded so far."""
        return Counter(row["outcome"] for row in self.deliveries)

    def _run(self) -> None:
        try:
            while True:
                last = self._stop.is_set()
                self._look()
                if last:
                    return
                self._stop.wait(_POLL_SECONDS)
        except BaseException as error:
            self.failure = error

    def _look(self) -> None:
        self.deliveries = self._api.items("/deliveries", 500)
        for row in self._fresh("delivery", self.deliveries, "id", "item", "outcome"):
            self._timeline.outcome(row)
        self.inbox = self._api.items("/inbox", 100)
        for row in self._fresh("inbox", self.inbox, "id", "status"):
            self._timeline.add("reply", f"{row['status']:<14}{row['sender']}: {row['text']}")
        self.backlog = self._api.items("/backlog", 500)
        for row in self._fresh("event", self.backlog, "id", "status", "attempts"):
            trust = "verified" if row["verified"] else "unverified"
            self._timeline.add("backlog", f"{row['status']:<14}{row['source']} / {row['definition']}", trust)
        self.cycles = self._api.items("/cycles", 100)
        for row in self._fresh("cycle", self.cycles, "id", "status"):
            work = f"{counted(row['events'], 'event')}, {counted(row['replies'], 'reply', 'replies')}"
            detail = work if row["status"] == "running" else counted(row["steps"], "step")
            self._timeline.add("cycle", f"{row['status']:<14}{row['id'][-12:]} ({row['reason']})", detail)
        for cycle in self.cycles:
            if cycle["status"] == "running" or self._once("transcript", cycle["id"]):
                self._tools(cycle["id"])
        self.messages = self._api.items("/messages", 100)
        for row in self._fresh("message", self.messages, "id", "status"):
            if row["status"] in ("sent", "failed"):
                self._timeline.add("message", f"{row['status']:<14}{row['channel']} -> {row['target']}")
                self._timeline.quote(row["text"])

    def _tools(self, cycle_id: str) -> None:
        for message in self._api.get(f"/cycles/{cycle_id}/messages")["items"]:
            for call in message["content"].get("tool_calls") or ():
                if self._once("tool", f"{cycle_id}/{call['id']}"):
                    function = call["function"]
                    self._timeline.add("tool", function["name"], function["arguments"])

    def _fresh(self, kind: str, rows: Iterable[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
        found = [row for row in rows if self._once(kind, "/".join(str(row[key]) for key in keys))]
        return found[::-1]

    def _once(self, kind: str, key: str) -> bool:
        if (kind, key) in self._known:
            return False
        self._known.add((kind, key))
        return True


class TickWatcher:
    """Reads the tick topic as an onlooker, in a thread and without a group, and tells the timeline."""

    def __init__(self, bootstrap_servers: str, timeline: Timeline) -> None:
        self._servers = bootstrap_servers
        self._timeline = timeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticks", daemon=True)
        self.seen: list[TickCommand] = []

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End within a few seconds."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers, client_id=f"demo-{uuid4()}", group_id=None, enable_auto_commit=False
        )
        try:
            async with asyncio.timeout(20):
                await consumer.start()
            count = topics.topic(topics.TICKS).partitions
            consumer.assign([TopicPartition(topics.TICKS, number) for number in range(count)])
            await consumer.seek_to_beginning()
            while not self._stop.is_set():
                batches = await consumer.getmany(timeout_ms=200)
                for records in batches.values():
                    for record in records:
                        self._tell(record.value)
        except (KafkaError, TimeoutError):
            self._timeline.add("tick", "the tick topic can't be read; the demo goes on without showing ticks")
        finally:
            stopping = asyncio.create_task(consumer.stop())
            await asyncio.wait({stopping}, timeout=5)

    def _tell(self, value: bytes | None) -> None:
        try:
            tick = read(TickCommand, value)
        except DeadLetter:
            return
        self.seen.append(tick)
        number = f" number {tick.seq}" if tick.seq else ""
        self._timeline.add("tick", f"{tick.reason}{number}", f"wakes instance {str(tick.instance_id)[-12:]}")
