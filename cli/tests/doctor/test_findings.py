"""Judging what the doctor read: each thing broken once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from room_cli.doctor import findings
from room_cli.doctor.findings import REPORTING, Finding
from room_common.contracts.source_config import TOKEN_COLUMN, TOKEN_TABLE
from room_common.contracts.topics import TOPICS
from room_common.crypto import Keyring
from room_common.domain.tokens import TokenKeys, make_token
from room_common.errors import DependencyUnavailable
from room_common.kafka.admin import TopicState

STATES = {topic.name: TopicState(topic.name, topic.partitions, 3) for topic in TOPICS}
CONFIGS = {topic.name: topic.config | {"min.insync.replicas": "2"} for topic in TOPICS}
FIRST = TOPICS[0].name
RING = Keyring("new", {"new": b"\x01" * 32, "old": b"\x02" * 32})
TOKENS = TokenKeys((b"\x03" * 32,))


def _topics(states: Mapping[str, TopicState] = STATES, configs: Mapping[str, Mapping[str, str]] = CONFIGS) -> Finding:
    found = list(findings.topics(states, configs, replication_factor=3, min_insync_replicas=2))
    assert {one.state for one in found[1:]} == {"ok"}
    return found[0]


def test_topics_as_they_should_be() -> None:
    assert _topics() == Finding(f"topic {FIRST}", "ok", "32 partitions, 3 copies")
    assert "does not tell its settings" in _topics(configs={}).said


@pytest.mark.parametrize(
    ("state", "told", "said", "remedy"),
    [
        (None, "problem", "is missing", "room topics --create"),
        (TopicState(FIRST, 32, 1), "problem", "1 copies of each partition", "reassign"),
        (TopicState(FIRST, 6, 3), "ok", "6 partitions, by default it has 32", ""),
    ],
)
def test_a_topic_that_differs(state: TopicState | None, told: str, said: str, remedy: str) -> None:
    states = {name: one for name, one in (STATES | {FIRST: state}).items() if one is not None}
    found = _topics(states)
    assert found.state == told and said in found.said and remedy in (found.remedy or "")


def test_retention_that_differs_is_told_with_what_would_set_it() -> None:
    found = _topics(configs=CONFIGS | {FIRST: {**CONFIGS[FIRST], "retention.ms": "1000"}})
    assert found.state == "warning"
    assert found.said == "retention.ms is 1000 instead of 604800000"
    assert found.remedy is not None and f"--topic {FIRST} --add-config retention.ms=604800000" in found.remedy


@pytest.mark.parametrize(
    ("skew", "state"),
    [(0.0, "ok"), (1.9, "ok"), (2.0, "warning"), (-59.0, "warning"), (-60.0, "problem")],
)
def test_clocks(skew: float, state: str) -> None:
    found = findings.clock(skew)
    assert found.state == state
    assert state == "ok" or ("ahead of" if skew > 0 else "behind") in found.said


def _sample(ring: Keyring, plain: bytes, **changes: Any) -> dict[str, Any]:
    sealed = ring.encrypt(plain, table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id="1")
    place = {"table": TOKEN_TABLE, "column": TOKEN_COLUMN, "row_id": "1"}
    return {**place, "sealed": sealed, "number": 2, **changes}


def _sealed(samples: Iterable[dict[str, Any]], tokens: TokenKeys | None = TOKENS) -> list[Finding]:
    return list(findings.sealed(list(samples), RING, tokens))


def test_keys_that_open_what_is_stored() -> None:
    token = make_token(TOKENS, b"x" * 24).encode()
    old = Keyring("old", {"old": b"\x02" * 32})
    (found,) = _sealed([_sample(RING, token), _sample(old, token)])
    assert found.state == "ok" and found.said == "4 stored secrets and URLs open, 2 of them with an older key"
    assert [one.said for one in _sealed([])] == ["nothing is stored encrypted yet"]


def test_keys_that_do_not() -> None:
    token = make_token(TOKENS, b"x" * 24).encode()
    gone = Keyring("gone", {"gone": b"\x09" * 32})
    changed = Keyring("new", {"new": b"\x09" * 32})
    for ring, said in ((gone, "'gone', which is not there"), (changed, "can't be decrypted though")):
        (found,) = _sealed([_sample(ring, token)])
        assert found.state == "problem" and said in found.said and found.remedy
    assert [one.state for one in _sealed([_sample(RING, token, sealed=b"\x01")])] == ["problem"]
    foreign, opened = _sealed([_sample(RING, token)], TokenKeys((b"\x04" * 32,)))
    assert (foreign.check, foreign.state, opened.state) == ("token keys", "problem", "ok")


def _row(service: str, **changes: Any) -> dict[str, Any]:
    return {"service": service, "version": "1", "held_reason": None, "lag": 0, "age_seconds": 1.0} | changes


@pytest.mark.parametrize(
    ("row", "state", "said", "remedy"),
    [
        ({}, "ok", "1 running", ""),
        ({"lag": 7}, "ok", "7 records wait", ""),
        ({"age_seconds": 60.0}, "problem", "seen last 60 s ago", "room logs matcher"),
        ({"held_reason": "key_unknown_key"}, "problem", "takes no work: key_unknown_key", "ROOM_ENCRYPTION__KEYS"),
        ({"held_reason": "something"}, "problem", "takes no work: something", "by itself"),
        ({"lag": 1000}, "warning", "1,000 records wait", "start more"),
        ({"version": "0"}, "warning", "of version 0", "upgrade"),
    ],
)
def test_services(row: dict[str, Any], state: str, said: str, remedy: str) -> None:
    rows = [_row("matcher", **row), *(_row(name) for name in REPORTING[1:])]
    found, *others = findings.services(rows, "1")
    assert found.state == state and said in found.said and remedy in (found.remedy or "")
    assert {one.state for one in others} == {"ok"}


def test_services_that_never_were_there() -> None:
    assert [one.said for one in findings.services([], "1")] == ["no process has reported yet"] * len(REPORTING)


def test_one_of_several_processes_that_died_is_no_problem() -> None:
    rows = [_row(name) for name in REPORTING] + [_row("matcher", age_seconds=900.0)]
    assert {one.state for one in findings.services(rows, "1")} == {"ok"}


def test_the_overflow_table() -> None:
    assert findings.overflow(0, None).state == "ok"
    assert findings.overflow(3, 12.0).said == "3 webhooks wait for Kafka, the oldest for 12 s"


def test_a_dependency_that_is_away_has_its_remedy() -> None:
    found = findings.unavailable("kafka", DependencyUnavailable("kafka", "connect", at="k:9092"))
    assert found.said == "kafka: connect at k:9092"
    assert found.remedy is not None and "ROOM_KAFKA__BOOTSTRAP_SERVERS" in found.remedy
