"""What a history must be like. Pure; every violation is a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from room_testing.overlap.history import Fault, History, Request, Write

AFTERMATH: Final = 45.0
"""Seconds after the end of a fault for which it explains a repeated call: a lease has to run out and be swept."""


def violations(history: History, aftermath: float = AFTERMATH) -> list[str]:
    """Everything that should not be."""
    return [
        *overlaps(history.writes),
        *unfinished(history),
        *unpaid(history, aftermath),
        *overpaid(history),
        *undelivered(history),
        *disorder(history),
        *repeated(history),
    ]


def overlaps(writes: Sequence[Write]) -> Iterator[str]:
    """A write of an epoch after the first one of a later epoch, or two writers in one epoch."""
    latest: dict[str, int] = {}
    writers: dict[tuple[str, int], str] = {}
    for write in writes:
        if write.epoch < latest.get(write.room, 0):
            yield f"room {write.room}: {write.what} under epoch {write.epoch} after epoch {latest[write.room]}"
        latest[write.room] = max(write.epoch, latest.get(write.room, 0))
        writer = writers.setdefault((write.room, write.epoch), write.writer)
        if writer != write.writer:
            yield f"room {write.room}: {writer} and {write.writer} both wrote under epoch {write.epoch}"


def unfinished(history: History) -> Iterator[str]:
    """Events and replies that did not come to an end, cycles that still run."""
    for event in history.events:
        if event["status"] not in ("completed", "failed"):
            yield f"event {event['id']} is {event['status']}"
    for reply in history.replies:
        if reply["status"] not in ("read", "failed"):
            yield f"reply {reply['text']} is {reply['status']}"
    for cycle in history.cycles:
        if cycle["status"] == "running":
            yield f"cycle {cycle['id']} still runs"


def unpaid(history: History, aftermath: float) -> Iterator[str]:
    """Model calls made again though the step was finished, or though nothing had happened to anybody."""
    by_cycle: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(history.requests, key=lambda one: one.at):
        by_cycle[request.cycle].append(request)
    thaws = [fault for fault in history.faults if fault.kind in ("freeze", "restart")]
    for cycle, requests in by_cycle.items():
        seen: dict[int, Request] = {}
        for request in requests:
            before = seen.get(request.step)
            if any(step > request.step for step in seen):
                # Whoever was frozen between its last look at the lease and its call makes that call when it thaws.
                if not _explained(thaws, request.at - 5.0, request.at, 5.0):
                    yield f"cycle {cycle}: step {request.step} was paid again after it had finished"
            elif before is not None and not _explained(history.faults, before.at, request.at, aftermath):
                yield f"cycle {cycle}: step {request.step} was paid again without a fault in between"
            seen[request.step] = request


def overpaid(history: History) -> Iterator[str]:
    """Cycles with more model calls than finished steps and one that was cut off for each time they were resumed."""
    made = Counter(request.cycle for request in history.requests)
    for cycle in history.cycles:
        allowed = cycle["steps"] + cycle["resumes"]
        if made[cycle["opening"]] > allowed:
            yield f"cycle {cycle['id']} made {made[cycle['opening']]} calls where {allowed} explain themselves"


def undelivered(history: History) -> Iterator[str]:
    """Messages that reached nobody, or more often than faults in their window allow; and ones that nobody wrote."""
    times: dict[str, list[float]] = defaultdict(list)
    for one in history.delivered:
        times[one.message].append(one.at)
    hits = [fault for fault in history.faults if fault.target.startswith("outbound") or fault.kind == "restart"]
    for message in history.messages:
        got = times.pop(message["id"], [])
        if not got:
            yield f"message {message['id']} ({message['status']}) was never delivered"
            continue
        crashes = sum(fault.start <= max(got) and fault.end >= min(got) - 1.0 for fault in hits)
        if len(got) > 1 + crashes:
            yield f"message {message['id']} was delivered {len(got)} times with {crashes} faults in its window"
    for stranger in times:
        yield f"message {stranger} was delivered and is in no outbox"


def disorder(history: History) -> Iterator[str]:
    """First deliveries of one target out of the order of its outbox."""
    first: dict[str, float] = {}
    for one in history.delivered:
        first.setdefault(one.message, one.at)
    last: dict[str, tuple[int, float]] = {}
    for message in sorted(history.messages, key=lambda row: (row["room"], row["seq"])):
        at = first.get(message["id"])
        if at is None:
            continue
        before = last.get(message["room"])
        if before is not None and at < before[1]:
            yield f"room {message['room']}: message {message['seq']} was delivered before message {before[0]}"
        last[message["room"]] = (message["seq"], at)


def repeated(history: History) -> Iterator[str]:
    """The same said twice by one cycle, or by two though its event lost no attempt; and things never said at all."""
    attempts = {f"event {event['id']}": event["attempts"] for event in history.events}
    said = Counter(message["text"] for message in history.messages)
    for (cycle, text), count in Counter((row["cycle"], row["text"]) for row in history.messages).items():
        if count > 1:
            yield f"cycle {cycle} said {text!r} {count} times"
    for text, count in said.items():
        if count > 1 + attempts.get(text, 4):
            yield f"{text!r} was said by {count} cycles"
    for event in history.events:
        if event["status"] == "completed" and not said[f"event {event['id']}"]:
            yield f"event {event['id']} is completed and nobody was told"
    for reply in history.replies:
        if reply["status"] == "read" and not said[f"re {reply['text']}"]:
            yield f"reply {reply['text']} is read and was not answered"


def _explained(faults: Sequence[Fault], start: float, end: float, aftermath: float) -> bool:
    return any(fault.start <= end and fault.end + aftermath >= start for fault in faults)
