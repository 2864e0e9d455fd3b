"""Logs: one JSON object a line on standard output, structlog and the standard library alike.

Services and libraries log through ``structlog.get_logger(__name__)`` or ``logging.getLogger(__name__)``; both end
here and get the same shape: ``timestamp`` (RFC 3339, UTC), ``level``, ``event``, ``logger``, ``service``,
``version``, ``trace_id`` and ``span_id`` where a span is current, then the fields of the call. Values pass
:mod:`room_common.telemetry.masking`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import orjson
import structlog
from opentelemetry import trace

from room_common.settings import LogSettings
from room_common.telemetry.masking import mask_text, mask_value
from room_common.telemetry.metrics import room_version

_REPETITIVE = frozenset({"aiokafka", "kafka", "faststream", "opentelemetry", "psycopg"})
_REPEATED = (2.0, 1 / 30)
"""Burst and rate of what these libraries say of a server that is away: Room's own line tells what can be done."""

EventDict = MutableMapping[str, Any]

_QUIET = {
    "aiokafka": logging.WARNING,
    "faststream": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "kafka": logging.WARNING,
    # It logs what servers sent; what matters is told by whoever uses it.
    "mcp": logging.CRITICAL,
    "openai": logging.WARNING,
    "psycopg.pool": logging.WARNING,
    "uvicorn": logging.WARNING,
}


def configure_logs(service: str, settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logs of this process to ``stream`` (standard output). Called once, by the service frame or the CLI."""
    out = sys.stdout if stream is None else stream
    console = settings.format == "console" or (settings.format == "auto" and out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(RateLimit())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                _add_suppressed,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _add_identity(service, room_version()),
                add_trace,
                mask_event,
                _console() if console else _json(),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root.setLevel(level)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, level))


def add_trace(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Processor: the ids of the current span, unless the call gave its own."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(context.trace_id))
        event.setdefault("span_id", trace.format_span_id(context.span_id))
    return event


def mask_event(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Processor: nothing secret in any key or value."""
    return {mask_text(str(key)): mask_value(value, str(key)) for key, value in event.items()}


class RateLimit(logging.Filter):
    """Let at most ``burst`` warnings and errors of one kind through at once, and ``per_second`` of them afterwards.

    Of libraries that log each try of a connection: 2 at once, then one in half a minute.
    A kind is logger, level and message before its arguments are put in. The next record that passes tells in
    ``suppressed`` how many did not. Lines below warning always pass: hot paths write one per batch.
    """

    def __init__(
        self,
        burst: int = 20,
        per_second: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        kinds: int = 1024,
    ) -> None:
        super().__init__()
        self._burst = float(burst)
        self._per_second = per_second
        self._clock = clock
        self._kinds = kinds
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, int, str], tuple[float, float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        message: Any = record.msg
        text = str(message.get("event", "")) if isinstance(message, dict) else str(message)
        kind = (record.name, record.levelno, text[:200])
        now = self._clock()
        burst, per_second = (
            (self._burst, self._per_second) if record.name.partition(".")[0] not in _REPETITIVE else _REPEATED
        )
        with self._lock:
            left, then, suppressed = self._buckets.pop(kind, (burst, now, 0))
            left = min(burst, left + (now - then) * per_second)
            passes = left >= 1.0
            self._buckets[kind] = (left - 1.0, now, 0) if passes else (left, now, suppressed + 1)
            if len(self._buckets) > self._kinds:
                self._buckets.popitem(last=False)
        if passes and suppressed:
            record.room_suppressed = suppressed
        return passes


def _add_suppressed(_logger: Any, _method: str, event: EventDict) -> EventDict:
    suppressed = getattr(event.get("_record"), "room_suppressed", 0)
    event.pop("room_suppressed", None)
    if suppressed:
        event["suppressed"] = suppressed
    return event


def _add_identity(service: str, version: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: EventDict) -> EventDict:
        head = {name: event.pop(name) for name in ("timestamp", "level", "event", "logger") if name in event}
        rest = {name: value for name, value in event.items() if name not in ("service", "version")}
        return {**head, "service": service, "version": version, **rest}

    return add


def _json() -> structlog.typing.Processor:
    def render(_logger: Any, _method: str, event: EventDict) -> str:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()

    return render


def _console() -> structlog.typing.Processor:
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)

    def render(logger: Any, method: str, event: EventDict) -> str:
        event.pop("service", None)
        event.pop("version", None)
        return str(renderer(logger, method, event))

    return render
