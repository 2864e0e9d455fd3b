"""The life of a delivery as lines of a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from room_cli.lookup import end_of_id
from room_cli.output import Line

Json = Mapping[str, Any]


def timeline(life: Json) -> list[Line]:
    """Oldest first; times are the API's."""
    first = life["items"][0]
    where = f"{life['room'] or 'no room'} / {life['source'] or 'no source'}"
    lines = [
        Line(None, "delivery", f"{life['id']} to {where}"),
        Line(
            life["received_at"],
            "received",
            f"{sum(item['size'] for item in life['items'])} bytes, {life['topic']} partition {life['partition']} "
            f"offset {life['offset']}",
        ),
    ]
    if life["trace_id"]:
        lines.append(Line(None, "trace", life["trace_id"]))
    if life["replay_of"]:
        lines.append(Line(None, "replay of", life["replay_of"]))
    several = len(life["items"]) > 1 or first["item"] > 0
    for item in life["items"]:
        if several:
            lines.append(Line(None, "item", str(item["item"])))
        lines += _item(item)
    lines += [Line(row["received_at"], "replayed", f"as {row['id']}") for row in life["replays"]]
    return lines


def _item(item: Json) -> Iterator[Line]:
    passed = ", ".join(check["check"] for check in item["checks"] if check["passed"])
    if passed:
        yield Line(None, "passed", passed)
    for check in item["checks"]:
        if not check["passed"]:
            yield Line(None, "stopped", _with(check["check"], check["reason"]))
    for change in item["changes"]:
        yield Line(None, "changed", str(change))
    if item["id_conflict"]:
        yield Line(None, "conflict", "its id was seen with another content")
    for verdict in item["verdicts"]:
        yield Line(None, "asked", _verdict(verdict))
    paid = f" ({item['llm_calls']} calls, {item['tokens']} tokens)" if item["llm_calls"] else ""
    why = item["definition"] or item["reason"]
    yield Line(item["decided_at"], item["outcome"], (str(why) if why else "") + paid)
    if item["event"] is not None:
        yield from _event(item["event"])


def _verdict(verdict: Json) -> str:
    cost = (
        "remembered"
        if verdict["remembered"]
        else f"{verdict['ms']} ms, {verdict['input_tokens']} + {verdict['output_tokens']} tokens"
    )
    said = f"{verdict['name']}: {verdict['verdict']} ({cost})"
    return said if verdict["answer"] is None else f"{said}: {verdict['answer']!r}"


def _event(event: Json) -> Iterator[Line]:
    trust = "verified" if event["verified"] else "not verified"
    yield Line(event["matched_at"], "event", f"{event['id']}, {trust}")
    for cycle in event["cycles"]:
        yield from _cycle(cycle)
    state = f"{event['status']}, {event['attempts']} attempts"
    if event["deferrals"]:
        state += f", {event['deferrals']} times deferred"
    if event["status"] == "pending":
        state += f", offered from {event['next_attempt_at']}"
    yield Line(event["completed_at"], "event is", _with(state, event["notes"]))


def _cycle(cycle: Json) -> Iterator[Line]:
    yield Line(cycle["started_at"], "cycle", f"{cycle['id']} ({cycle['reason']}) on {cycle['worker']}")
    if cycle["trace_id"]:
        yield Line(None, "trace", cycle["trace_id"])
    for call in cycle["tool_calls"]:
        yield Line(call["created_at"], "tool", f"{call['name']}({call['arguments']})")
        if call["result"] is not None:
            yield Line(None, "", f"-> {call['result']}")
    for message in cycle["messages"]:
        at = message["sent_at"] or message["created_at"]
        said = f"{message['status']} on {message['channel']}, ...{end_of_id(message['id'])}"
        yield Line(at, "message", _with(said, message["error"]))
        yield Line(None, "", message["text"])
    used = f"{cycle['steps']} steps, {cycle['input_tokens']} + {cycle['output_tokens']} tokens"
    yield Line(cycle["finished_at"], "cycle is", _with(f"{cycle['status']}, {used}", cycle["error_kind"]))


def _with(text: str, more: object) -> str:
    return text if more is None else f"{text}: {more}"
