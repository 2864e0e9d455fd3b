"""What a check found, and judging what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from room_common.advice import place_of, remedy
from room_common.contracts.source_config import TOKEN_TABLE
from room_common.contracts.topics import TOPICS
from room_common.crypto import Keyring, UnknownKey, Unreadable, key_id_of
from room_common.domain.tokens import TokenKeys, is_ours
from room_common.errors import DependencyUnavailable
from room_common.kafka.admin import TopicState

State = Literal["ok", "warning", "problem", "skipped"]

REPORTING: Final = ("matcher", "scheduler", "room-runner", "outbound", "compactor", "admin")
"""The services that report to the database every five seconds; ingest works without one."""
_UNSEEN_SECONDS: Final = 20.0
_MUCH_LAG: Final = 1_000
_SKEW_WARNING: Final = 2.0
_SKEW_PROBLEM: Final = 60.0
"""Providers' signatures are valid for five minutes on either side."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to. ``remedy`` says what to do, where there is anything to do."""

    check: str
    state: State
    said: str
    remedy: str | None = None


def unavailable(check: str, error: DependencyUnavailable) -> Finding:
    """A dependency that is away."""
    return Finding(check, "problem", place_of(error), remedy(error))


def clock(skew: float) -> Finding:
    """How far this machine's clock is ahead of the database's, in seconds."""
    said = f"this machine is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the database"
    if abs(skew) < _SKEW_WARNING:
        return Finding("clock", "ok", "this machine and the database agree")
    state: State = "problem" if abs(skew) >= _SKEW_PROBLEM else "warning"
    return Finding("clock", state, said, "let NTP or chrony set both clocks: signatures of webhooks carry a time")


def topics(
    states: Mapping[str, TopicState],
    configs: Mapping[str, Mapping[str, str]],
    *,
    replication_factor: int,
    min_insync_replicas: int,
) -> Iterator[Finding]:
    """Every topic of Room as the broker has it."""
    for topic in TOPICS:
        check = f"topic {topic.name}"
        state = states.get(topic.name)
        if state is None:
            yield Finding(check, "problem", "is missing", "`room topics --create` makes it")
            continue
        wanted = topic.config | {"min.insync.replicas": str(min_insync_replicas)}
        known = configs.get(topic.name, {})
        wrong = {key: value for key, value in wanted.items() if key in known and known[key] != value}
        if state.replication_factor < replication_factor:
            yield Finding(
                check,
                "problem",
                f"{state.replication_factor} copies of each partition, ROOM_KAFKA__REPLICATION_FACTOR says "
                f"{replication_factor}",
                "kafka-reassign-partitions adds copies; with fewer, what was answered 200 may be lost",
            )
        elif wrong:
            said = ", ".join(f"{key} is {known[key]} instead of {value}" for key, value in wrong.items())
            change = ",".join(f"{key}={value}" for key, value in wrong.items())
            yield Finding(
                check,
                "warning",
                said,
                f"if it was not meant: kafka-configs --alter --topic {topic.name} --add-config {change}",
            )
        elif state.partitions != topic.partitions:
            yield Finding(
                check, "ok", f"{state.partitions} partitions, by default it has {topic.partitions}; that is final"
            )
        else:
            told = "" if known else "; the broker does not tell its settings"
            yield Finding(check, "ok", f"{state.partitions} partitions, {state.replication_factor} copies{told}")


def sealed(samples: Sequence[Mapping[str, Any]], keyring: Keyring, token_keys: TokenKeys | None) -> Iterator[Finding]:
    """Whether our keys open what is stored, one value for each key and table."""
    opened, old, foreign = 0, 0, 0
    for sample in samples:
        where = f"{sample['number']} in {sample['table']}.{sample['column']}"
        value = bytes(sample["sealed"])
        try:
            plain = keyring.decrypt(value, table=sample["table"], column=sample["column"], row_id=sample["row_id"])
        except UnknownKey:
            yield Finding(
                "encryption keys",
                "problem",
                f"{where} were encrypted with the key {key_id_of(value)!r}, which is not there",
                "put it back into ROOM_ENCRYPTION__KEYS, behind the new one",
            )
            continue
        except Unreadable:
            yield Finding(
                "encryption keys",
                "problem",
                f"{where}: can't be decrypted though a key of that id is there",
                "the key's bytes were changed, or the row was: put the right key back, or apply the room's file again",
            )
            continue
        opened += sample["number"]
        old += sample["number"] if keyring.stale(value) else 0
        if sample["table"] == TOKEN_TABLE and token_keys is not None and not is_ours(token_keys, plain):
            foreign += 1
    if foreign:
        yield Finding(
            "token keys",
            "problem",
            "other keys than those of ROOM_TOKEN_KEYS made URLs that are stored: ingest takes nothing that comes there",
            "put the key that made them back into ROOM_TOKEN_KEYS, behind the new one, for ingest and admin",
        )
    if opened or not samples:
        said = f"{opened} stored secrets and URLs open" if opened else "nothing is stored encrypted yet"
        yield Finding("encryption keys", "ok", said + (f", {old} of them with an older key" if old else ""))


def services(rows: Sequence[Mapping[str, Any]], version: str) -> Iterator[Finding]:
    """Who reports to the database, and what holds them."""
    for service in REPORTING:
        own = [row for row in rows if row["service"] == service]
        alive = [row for row in own if row["age_seconds"] <= _UNSEEN_SECONDS]
        if not alive:
            last = min((row["age_seconds"] for row in own), default=None)
            said = "no process has reported yet" if last is None else f"was seen last {last:.0f} s ago"
            yield Finding(f"service {service}", "problem", said, f"start it, or look at its log: `room logs {service}`")
        else:
            yield _alive(service, alive, version)


def _alive(service: str, rows: Sequence[Mapping[str, Any]], version: str) -> Finding:
    check, processes = f"service {service}", f"{len(rows)} running"
    held = next((row["held_reason"] for row in rows if row["held_reason"]), None)
    lag = sum(row["lag"] or 0 for row in rows)
    others = {row["version"] for row in rows} - {version}
    if held is not None:
        dependency, _, kind = held.partition("_")
        advice = remedy(DependencyUnavailable(dependency, kind)) or "it goes on by itself when that is over"
        return Finding(check, "problem", f"takes no work: {held}", advice)
    if lag >= _MUCH_LAG:
        return Finding(
            check, "warning", f"{processes}, {lag:,} records wait", "if it does not fall, start more of them"
        )
    if others:
        said = f"{processes}, of version {', '.join(sorted(others))}; this command is {version}"
        return Finding(check, "warning", said, "finish the upgrade: one version of everything")
    return Finding(check, "ok", processes + (f", {lag:,} records wait" if lag else ""))


def overflow(rows: int, oldest_seconds: float | None) -> Finding:
    """Webhooks that wait for Kafka."""
    if not rows:
        return Finding("overflow", "ok", "nothing waits for Kafka")
    said = f"{rows:,} webhooks wait for Kafka, the oldest for {oldest_seconds or 0:,.0f} s"
    return Finding("overflow", "warning", said, "ingest drains them once Kafka takes records again: look at Kafka")
