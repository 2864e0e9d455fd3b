"""How a service lives: start in order, say what it waits for, drain on a signal, and leave with a meaningful exit code.

Exit codes: 0 after SIGTERM or SIGINT and an orderly drain, 1 after a crash, 2 for a wrong setting. A second signal
ends the process at once with 128 + its number.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, NoReturn

import structlog
import uvloop

from room_common.advice import explain
from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.service.lag import LagWatch
from room_common.service.operations import Operations
from room_common.service.parts import Context, Part, SettingsT
from room_common.telemetry.logs import configure_logs
from room_common.telemetry.metrics import PART_FAILURES, counter, new_registry
from room_common.telemetry.tracing import configure_tracing

_log = structlog.get_logger(__name__)

FIRST_RETRY = 0.2
LAST_RETRY = 5.0
"""Bounds of the seconds between two starts of a part whose dependency is away."""

_LOG_EVERY = 30.0
_EXIT_SECONDS = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Compose = Callable[[Context[SettingsT]], Sequence[Part]]


def run_service(name: str, settings: SettingsT, compose: Compose[SettingsT]) -> NoReturn:
    """Run the parts that ``compose`` builds until a signal, a crash or a wrong setting ends the process."""
    instance = f"{name}-{socket.gethostname()}-{os.getpid()}"
    configure_logs(name, settings.log)
    try:
        flush = configure_tracing(name, instance)
    except ConfigurationError as error:
        _log.error("configuration", error=str(error))
        sys.exit(2)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_serve(name, instance, settings, compose))
        _leave_in_any_case(code)
        flush()
    sys.exit(code)


async def _serve(name: str, instance: str, settings: SettingsT, compose: Compose[SettingsT]) -> int:
    context = Context(
        service=name,
        instance=instance,
        settings=settings,
        registry=new_registry(name),
        stopping=asyncio.Event(),
    )
    try:
        frame = Frame(context, compose(context))
    except ConfigurationError as error:
        _log.error("configuration", error=str(error))
        return 2
    except Exception:
        _log.exception("crashed while it was put together")
        return 1
    _handle_signals(context.stopping)
    return await frame.run()


def _handle_signals(stopping: asyncio.Event) -> None:
    """The first signal asks for a drain. The second is answered by the interpreter, even while the loop is blocked."""
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        _log.info("stopping", signal=number.name)
        stopping.set()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, lambda received, _frame: os._exit(128 + received))

    for each in _SIGNALS:
        loop.add_signal_handler(each, first, each)


def _leave_in_any_case(code: int) -> None:
    """A stuck thread or exporter must not keep a process that has drained."""
    timer = threading.Timer(_EXIT_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


class Frame(Generic[SettingsT]):
    """The life of one service."""

    def __init__(self, context: Context[SettingsT], parts: Sequence[Part]) -> None:
        self._context = context
        self._parts = tuple(parts)
        self._begun: list[Part] = []
        self._started: set[Part] = set()
        self._waiting = {part.name: "not started" for part in self._parts}
        self._failed = asyncio.Event()
        self._code = 0
        self._lag = LagWatch(context.registry)
        self._failures = counter(context.registry, PART_FAILURES)
        self.operations = Operations(context.settings.operations, context.registry, self.dead, self.waiting)
        if len(self._waiting) != len(self._parts):
            raise ConfigurationError("two parts of the service have the same name")

    async def run(self) -> int:
        """Live. Returns the exit code."""
        try:
            await self.operations.start()
        except ConfigurationError as error:
            _log.error("configuration", error=str(error))
            return 2
        self._lag.start()
        _log.info("starting", operations_port=self.operations.port, instance=self._context.instance)
        if await self._start_all():
            _log.info("started", parts=[part.name for part in self._parts])
            await self._first_of(self._context.stopping.wait(), self._failed.wait(), self._tell_what_is_missing())
        self._context.stopping.set()
        await self._stop_all()
        self._lag.stop()
        await self.operations.stop()
        _log.info("stopped", code=self._code)
        return self._code

    def dead(self) -> dict[str, str]:
        """Why /livez fails, by part. A service that drains is alive: it ends by itself, within bounds."""
        if self._context.stopping.is_set():
            return {}
        reasons = {part.name: reason for part in self._started if (reason := _ask(part.alive))}
        lag = self._lag.failing()
        return {**reasons, "event loop": lag} if lag else reasons

    def waiting(self) -> dict[str, str]:
        """Why /readyz fails, by part."""
        if self._context.stopping.is_set():
            return {"service": "stopping"}
        reasons = dict(self._waiting)
        reasons.update({part.name: reason for part in self._started if (reason := _ask(part.ready))})
        return reasons

    async def _start_all(self) -> bool:
        for part in self._parts:
            part.supervise(self._on_failure)
            self._begun.append(part)
            if not await self._start(part):
                return False
            self._started.add(part)
            self._waiting.pop(part.name, None)
        return True

    async def _start(self, part: Part) -> bool:
        """Start ``part``, however long its dependency is away. False when the service shall end instead."""
        delay, attempt, reported, last_reason = FIRST_RETRY, 0, float("-inf"), ""
        loop = asyncio.get_running_loop()
        self._waiting[part.name] = "starting"
        while not self._ending():
            attempt += 1
            task = asyncio.create_task(part.start(), name=f"start-{part.name}")
            await self._first_of(self._context.stopping.wait(), self._failed.wait(), task=task)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=part.stop_timeout)
                return False
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None:
                return True
            reason = _retry_reason(error)
            if reason is None:
                self._on_failure(part, error)
                return False
            self._waiting[part.name] = reason
            self._failures.labels(part=part.name).inc()
            if reason != last_reason or loop.time() - reported >= _LOG_EVERY:
                _log.warning("waiting", part=part.name, reason=reason, attempt=attempt)
                reported, last_reason = loop.time(), reason
            await self._sleep(delay * random.uniform(0.7, 1.0))  # noqa: S311 - jitter
            delay = min(LAST_RETRY, delay * 2)
        return False

    async def _stop_all(self) -> None:
        for part in reversed(self._begun):
            task = asyncio.create_task(part.stop(), name=f"stop-{part.name}")
            _, pending = await asyncio.wait({task}, timeout=part.stop_timeout)
            if pending:
                task.cancel()
                _log.error("did not stop in time", part=part.name, seconds=part.stop_timeout)
                await asyncio.wait({task}, timeout=1.0)
            elif not task.cancelled() and (error := task.exception()) is not None:
                _log.error("failed to stop", part=part.name, exc_info=error)

    async def _tell_what_is_missing(self) -> None:
        """While a part that worked does not, say so now and then: what was logged at first is long scrolled away."""
        while True:
            await asyncio.sleep(_LOG_EVERY)
            for part, reason in self.waiting().items():
                _log.warning("waiting", part=part, reason=reason)

    def _ending(self) -> bool:
        return self._context.stopping.is_set() or self._failed.is_set()

    def _on_failure(self, part: Part, error: BaseException) -> None:
        """End the service. While it drains, later failures are only told: what is stopped may well complain."""
        if isinstance(error, ConfigurationError):
            _log.error("configuration", part=part.name, error=str(error))
        else:
            _log.error("crashed", part=part.name, exc_info=error)
        if not self._ending():
            self._code = 2 if isinstance(error, ConfigurationError) else 1
            self._failed.set()

    async def _sleep(self, seconds: float) -> None:
        await self._first_of(self._context.stopping.wait(), self._failed.wait(), asyncio.sleep(seconds))

    @staticmethod
    async def _first_of(*waits: Coroutine[Any, Any, Any], task: asyncio.Task[None] | None = None) -> None:
        """Wait until one of ``waits`` or ``task`` is done; ``task`` itself is left as it is."""
        tasks: set[asyncio.Task[Any]] = {asyncio.create_task(wait) for wait in waits}
        try:
            await asyncio.wait(tasks if task is None else {*tasks, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _retry_reason(error: BaseException) -> str | None:
    """What to wait for, or None where waiting won't help. Never a library's message, which may hold a secret."""
    if isinstance(error, DependencyUnavailable):
        return explain(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror}" if error.strerror else type(error).__name__
    return None


def _ask(question: Callable[[], str | None]) -> str | None:
    try:
        return question()
    except Exception as error:
        _log.exception("a health check failed")
        return f"the check itself failed: {type(error).__name__}"
