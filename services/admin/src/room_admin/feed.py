"""The live feed: one reader of the database for all who listen, and a bounded queue for each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from room_admin.domain.cursor import decode_cursor, encode_cursor
from room_admin.domain.event_stream import HEARTBEAT, States, frame, retry
from room_admin.problems import Problem
from room_common.errors import DependencyUnavailable, Refused
from room_common.postgres import feed, listings, panel_views, service_state
from room_common.postgres.database import Connection, Database
from room_common.service.parts import Loop

Row = Mapping[str, Any]
Holds = Callable[[], Awaitable[bool]]

EVERY: Final = 1.0
"""Seconds between two looks at activity and cycles."""
STATES_EVERY: Final = 2.0
"""Seconds between two looks at rooms and processes; more where looking takes long."""
HEARTBEAT_SECONDS: Final = 15.0
QUEUE: Final = 500
"""Events that may wait for one client before it is cut off."""
STREAMS: Final = 100
STREAMS_OF_ONE: Final = 20
LATE: Final = timedelta(seconds=10)
"""A row of activity has the time at which its transaction began: one that took longer to commit is not told of."""
ROWS: Final = 500
"""Rows of activity told of at once; where there were more, ``gap`` says so."""
TRANSCRIPT_ROWS: Final = 200
_RETRY_MS: Final = 2000
_SHARE: Final = 20
"""Reading states takes at most one part in so many of the time."""


class _Listener:
    def __init__(self, room: str | None) -> None:
        self.room = room
        self.queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        self.cut = asyncio.Event()

    def offer(self, event: bytes, room: object) -> None:
        if self.room is not None and room is not None and room != self.room:
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self.cut.set()


@dataclass(frozen=True, slots=True)
class _CycleRead:
    cycle: Sequence[Row]
    transcript: Sequence[Row]
    messages: Sequence[Row]
    more: bool

    @property
    def over(self) -> bool:
        return bool(self.cycle) and self.cycle[0]["status"] != "running" and not self.more


class _Pulse:
    """When a heartbeat is due, and whether the stream may go on then."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._at = time.monotonic() + HEARTBEAT_SECONDS

    def due(self) -> bool:
        return time.monotonic() >= self._at

    async def holds(self) -> bool:
        """A database that is away ends no stream."""
        self._at = time.monotonic() + HEARTBEAT_SECONDS
        try:
            return await self._holds()
        except DependencyUnavailable:
            return True


class Stream:
    """The events for one client. Whoever got it closes it, also if it was never read."""

    def __init__(self, events: AsyncGenerator[bytes, None], closed: Callable[[], None]) -> None:
        self._events = events
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        return self._events

    async def aclose(self) -> None:
        """Free its place."""
        await self._events.aclose()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()


class Feed(Loop):
    """Reads while somebody listens, and hands out what changed."""

    name = "feed"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._listeners: set[_Listener] = set()
        self._streams: dict[str, int] = {}
        self._reading = asyncio.Lock()
        self._rooms = States(lambda row: row["slug"])
        self._cycles = States(lambda row: row["id"])
        self._services = States(
            lambda row: (row["service"], row["process"]), ignored=frozenset({"seen_at", "age_seconds"})
        )
        self._seen: dict[UUID, datetime] = {}
        self._read_at: datetime | None = None
        self._last_key: tuple[datetime, UUID] | None = None
        self._looked = -EVERY
        self._states_due = 0.0

    async def run(self) -> None:
        while await self.pause(EVERY):
            if self._listeners:
                with suppress(DependencyUnavailable):  # the next look sees all that this one would have
                    await self._look()

    async def listen(self, caller: str, *, room: str | None, last_event_id: str | None, holds: Holds) -> Stream:
        """The events for one client, its states first. ``holds`` is asked at each heartbeat whether to go on.

        Raises ``Problem`` 429 for too many streams and 400 for an id that no event had; ``DependencyUnavailable``.
        """
        after = None if last_event_id is None else _place(last_event_id)
        listener = _Listener(room)
        self._enter(caller)
        try:
            if time.monotonic() - self._looked >= EVERY:
                await self._look()
            self._listeners.add(listener)  # before reading, so that nothing falls in between
            missed = await self._missed(after, room)
            first = [retry(_RETRY_MS), *self._states(room), *missed, frame("ready", {}, self._last_id())]
        except BaseException:
            self._leave(caller, listener)
            raise
        return Stream(self._events(listener, first, holds), partial(self._leave, caller, listener))

    async def follow(self, caller: str, cycle_id: UUID, *, last_event_id: str | None, holds: Holds) -> Stream:
        """One cycle: its transcript as it grows, its state and its messages, ``end`` when it is over.

        Raises as :meth:`listen` does.
        """
        seq = 0 if last_event_id is None else _seq(last_event_id)
        self._enter(caller)
        return Stream(self._cycle_events(cycle_id, seq, holds), partial(self._leave, caller))

    def _enter(self, caller: str) -> None:
        if sum(self._streams.values()) >= STREAMS or self._streams.get(caller, 0) >= STREAMS_OF_ONE:
            raise Problem(429, "too many live streams are open; close one", retry_after=30)
        self._streams[caller] = self._streams.get(caller, 0) + 1

    def _leave(self, caller: str, listener: _Listener | None = None) -> None:
        if listener is not None:
            self._listeners.discard(listener)
        self._streams[caller] -= 1
        if not self._streams[caller]:
            del self._streams[caller]

    async def _events(self, listener: _Listener, first: Sequence[bytes], holds: Holds) -> AsyncGenerator[bytes, None]:
        for state in first:
            yield state
        pulse = _Pulse(holds)
        while not self.stopping.is_set():
            if listener.cut.is_set():
                yield frame("cut", {"reason": "this client took its events too slowly"})
                return
            event: bytes | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    event = await listener.queue.get()
            if event is not None:
                yield event
            if pulse.due():
                if not await pulse.holds():
                    return
                yield HEARTBEAT

    async def _cycle_events(self, cycle_id: UUID, seq: int, holds: Holds) -> AsyncGenerator[bytes, None]:
        states, sent, pulse = States(lambda row: row["id"]), States(lambda row: row["id"]), _Pulse(holds)
        yield retry(_RETRY_MS)
        while not self.stopping.is_set():
            read = await self._read_cycle(cycle_id, seq)
            for row in read.transcript:
                seq = row["seq"]
                yield frame("transcript", row, str(seq))
            for row in sent.changed(read.messages) if read.cycle else []:
                yield frame("message", row)
            for row in states.changed(read.cycle) if read.cycle else []:
                yield frame("cycle", row)
            if read.over:
                yield frame("end", {})
                return
            if pulse.due():
                if not await pulse.holds():
                    return
                yield HEARTBEAT
            if not read.more:
                await self.pause(EVERY)

    async def _read_cycle(self, cycle_id: UUID, seq: int) -> _CycleRead:
        """Nothing while the database is away: the next look sees all of it."""
        try:
            async with self._database.transaction() as conn:
                # The state is read first: when it says that the cycle is over, its transcript is whole.
                cycle, _ = await listings.page(conn, "cycles", {"id": cycle_id}, after=None, limit=1)
                rows = await listings.transcript(conn, cycle_id, after=seq, limit=TRANSCRIPT_ROWS)
                messages, _ = await listings.page(conn, "messages", {"cycles": [cycle_id]}, after=None, limit=100)
        except DependencyUnavailable:
            return _CycleRead((), (), (), more=False)
        return _CycleRead(cycle, rows, messages, more=len(rows) == TRANSCRIPT_ROWS)

    def _states(self, room: str | None) -> list[bytes]:
        events = [frame("room", row) for row in self._rooms.rows if room in (None, row["slug"])]
        events += [frame("cycle", row) for row in self._cycles.rows if room in (None, row["room"])]
        return events + [frame("service", row) for row in self._services.rows]

    def _last_id(self) -> str | None:
        if self._last_key is not None:
            return encode_cursor(self._last_key)
        return None if self._read_at is None else encode_cursor((self._read_at, UUID(int=0)))

    async def _missed(self, after: tuple[datetime, UUID] | None, room: str | None) -> list[bytes]:
        """What happened since an event that a client had: some of it again, where it may have come late."""
        if after is None:
            return []
        async with self._database.transaction() as conn:
            instance = None if room is None else await listings.instance_id(conn, room)
            rows, more = await listings.page(
                conn, "activity", {"since": after[0] - LATE, "room": instance}, after=None, limit=ROWS
            )
        events = [frame("gap", {"of": "activity"})] if more is not None else []
        return events + [frame("activity", row) for row in reversed(rows)]

    async def _look(self) -> None:
        """Read what is due, and hand out what is new."""
        async with self._reading:
            started = time.monotonic()
            if started - self._looked < EVERY / 2:
                return  # somebody else has just looked
            async with self._database.transaction() as conn:
                await self._activity(conn)
                await self._cycle_states(conn)
                if started >= self._states_due:
                    rooms = await panel_views.rooms(conn)
                    services = await service_state.list_states(conn)
                    self._hand_out("room", self._rooms, rooms, ("slug",), "slug")
                    self._hand_out("service", self._services, services, ("service", "process"), None)
                    took = time.monotonic() - started
                    self._states_due = time.monotonic() + max(STATES_EVERY, took * _SHARE)
            self._looked = time.monotonic()

    async def _activity(self, conn: Connection) -> None:
        now = await feed.clock(conn)
        since = (self._read_at or now) - LATE
        rows, more = await listings.page(conn, "activity", {"since": since}, after=None, limit=ROWS)
        fresh = [row for row in reversed(rows) if row["id"] not in self._seen]
        first_time, self._read_at = self._read_at is None, now
        self._seen = {id_: at for id_, at in self._seen.items() if at >= since}
        self._seen |= {row["id"]: row["occurred_at"] for row in fresh}
        for row in fresh:
            self._last_key = max(self._last_key or (row["occurred_at"], row["id"]), (row["occurred_at"], row["id"]))
        if first_time:
            return
        if more is not None and len(fresh) == ROWS:
            self._tell(frame("gap", {"of": "activity"}), None)
        for row in fresh:
            self._tell(frame("activity", row, self._last_id()), row["room"])

    async def _cycle_states(self, conn: Connection) -> None:
        """Those that run, and for the last time those that ran when they were looked at before."""
        ids = {*await feed.running_cycles(conn, ROWS), *(row["id"] for row in self._cycles.rows)}
        rows: Sequence[Row] = []
        if ids:
            rows, _ = await listings.page(conn, "cycles", {"ids": list(ids)}, after=None, limit=len(ids))
        for row in self._cycles.changed(rows):
            self._tell(frame("cycle", row), row["room"])
        self._cycles.changed([row for row in rows if row["status"] == "running"])

    def _hand_out(self, kind: str, states: States, rows: Sequence[Row], key: tuple[str, ...], room: str | None) -> None:
        for row in states.gone(rows):
            event = frame(kind, {name: row[name] for name in key} | {"gone": True})
            self._tell(event, None if room is None else row[room])
        for row in states.changed(rows):
            self._tell(frame(kind, row), None if room is None else row[room])

    def _tell(self, event: bytes, room: object) -> None:
        for listener in self._listeners:
            listener.offer(event, room)


def _place(last_event_id: str) -> tuple[datetime, UUID]:
    try:
        at, row_id = decode_cursor(last_event_id, "tu")
        at - LATE
    except (Refused, OverflowError):
        raise Problem(400, "Last-Event-ID is not the id of an event of this feed") from None
    return at, row_id


def _seq(last_event_id: str) -> int:
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 9):
        raise Problem(400, "Last-Event-ID is not the id of an event of this cycle")
    return int(last_event_id)
