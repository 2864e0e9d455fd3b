from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import structlog
from opentelemetry import trace

from room_common.settings import LogSettings
from room_common.telemetry.logs import RateLimit, configure_logs

TOKEN = "ab" * 32


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


def test_both_kinds_of_loggers_write_the_same_shape(out: io.StringIO) -> None:
    configure_logs("matcher", LogSettings(format="json"), out)
    structlog.get_logger("a.b").info("decided", outcome="matched", count=3)
    logging.getLogger("c.d").info("took %s", "it", extra={"partition": 4})
    first, second = lines(out)
    assert first | {"timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "event": "decided",
        "logger": "a.b",
        "service": "matcher",
        "version": first["version"],
        "outcome": "matched",
        "count": 3,
    }
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["logger"], second["partition"]) == ("took it", "c.d", 4)


def test_exceptions_are_one_line_and_masked(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(format="json"), out)
    try:
        try:
            raise ValueError(f"/webhooks/{TOKEN}")
        except ValueError as error:
            raise RuntimeError("postgresql://u:pw-secret@h/d") from error
    except RuntimeError:
        structlog.get_logger("a").exception("failed", url=f"http://h/webhooks/{TOKEN}")
        logging.getLogger("b").exception("failed too: %s", f"/webhooks/{TOKEN}")
    assert TOKEN not in out.getvalue()
    assert "pw-secret" not in out.getvalue()
    first, second = lines(out)
    assert "RuntimeError" in first["exception"]
    assert "RuntimeError" in second["exception"]


def test_the_ids_of_the_current_span_are_in_the_line(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(format="json"), out)
    span = trace.NonRecordingSpan(trace.SpanContext(trace_id=1, span_id=2, is_remote=True))
    with trace.use_span(span):
        structlog.get_logger("a").info("one")
    (line,) = lines(out)
    assert (line["trace_id"], line["span_id"]) == ("1".zfill(32), "2".zfill(16))


def test_the_level_counts_and_chatty_libraries_are_quiet(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(format="json", level="info"), out)
    structlog.get_logger("a").debug("no")
    logging.getLogger("psycopg.pool").info("no")
    logging.getLogger("httpx").info("no")
    logging.getLogger("httpx").warning("yes")
    assert [line["event"] for line in lines(out)] == ["yes"]


def test_console_lines_are_masked_too(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(format="console"), out)
    try:
        raise ValueError("password=oops123")
    except ValueError:
        structlog.get_logger("a").exception("failed", path=f"/webhooks/{TOKEN}")
    assert "failed" in out.getvalue()
    assert "ValueError" in out.getvalue()
    assert TOKEN not in out.getvalue()
    assert "oops123" not in out.getvalue()


def test_auto_writes_json_where_there_is_no_terminal(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(), out)
    structlog.get_logger("a").info("one")
    assert lines(out)[0]["event"] == "one"


def test_a_flood_of_one_error_is_cut_and_counted(out: io.StringIO) -> None:
    configure_logs("x", LogSettings(format="json"), out)
    for _ in range(100):
        structlog.get_logger("hot").warning("dropped", why="x")
    structlog.get_logger("hot").warning("another kind")
    events = [line["event"] for line in lines(out)]
    assert events.count("dropped") == 20
    assert events.count("another kind") == 1


def record(message: str, level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord("n", level, "", 0, message, (), None)


def test_the_rate_limit_refills_and_tells_what_was_suppressed() -> None:
    now = 0.0
    limit = RateLimit(burst=2, per_second=1.0, clock=lambda: now)
    assert [limit.filter(record("a")) for _ in range(5)] == [True, True, False, False, False]
    assert limit.filter(record("b"))
    assert all(limit.filter(record("a", logging.INFO)) for _ in range(50))
    now = 1.0
    passed = record("a")
    assert limit.filter(passed)
    assert passed.__dict__["room_suppressed"] == 3
    now = 2.0
    clean = record("a")
    assert limit.filter(clean)
    assert "room_suppressed" not in clean.__dict__


def test_the_rate_limit_remembers_a_bounded_number_of_kinds() -> None:
    limit = RateLimit(burst=1, kinds=10)
    for number in range(1000):
        limit.filter(record(f"kind {number}"))
    assert len(limit._buckets) == 10


@pytest.mark.parametrize("library", ["aiokafka", "aiokafka.client", "faststream.kafka"])
def test_what_a_library_repeats_of_an_absent_server_is_told_twice_and_then_now_and_then(library: str) -> None:
    now = 0.0
    limit = RateLimit(clock=lambda: now)

    def passed(tries: int) -> int:
        return sum(
            limit.filter(logging.LogRecord(library, logging.ERROR, "", 0, "Unable connect to %s", (node,), None))
            for node in range(tries)
        )

    assert passed(7) == 2
    now = 60.0
    assert passed(7) == 2
    now = 90.0
    assert passed(7) == 1
