"""What a service is made of: parts that start in order and stop in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry

from room_common.errors import Defect
from room_common.settings import ServiceSettings

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


@dataclass(frozen=True, slots=True)
class Context(Generic[SettingsT]):
    """What ``compose`` gets to build a service's parts from.

    ``stopping`` is set as soon as the service begins to drain, before the first part's ``stop``. ``instance`` names
    this process among its replicas: ``<service>-<host>-<pid>``.
    """

    service: str
    instance: str
    settings: SettingsT
    registry: CollectorRegistry
    stopping: asyncio.Event


class Part:
    """One thing with a lifetime inside a service.

    The frame calls ``start`` on every part in order and ``stop`` in reverse. ``start`` may raise: for a dependency
    that is away (``DependencyUnavailable``, ``OSError``, ``TimeoutError``) the frame calls it again with back-off for
    ever, so it has to be callable after a failure; anything else ends the process. ``stop`` is called whether or not
    ``start`` succeeded, once, and is abandoned after ``stop_timeout`` seconds.
    """

    name: str = "part"
    stop_timeout: float = 10.0
    _on_failure: Callable[[Part, BaseException], None] | None = None

    async def start(self) -> None:
        """Begin. Returns once the part works."""

    async def stop(self) -> None:
        """Finish or give back what is in hand, and release everything."""

    def alive(self) -> str | None:
        """None while this part progresses, else why /livez fails. Never asks a dependency."""
        return None

    def ready(self) -> str | None:
        """None when this part can work, else the reason /readyz shows. Never contains a secret."""
        return None

    def supervise(self, on_failure: Callable[[Part, BaseException], None]) -> None:
        """Let the frame know of failures after ``start``. Called by the frame."""
        self._on_failure = on_failure

    def fail(self, error: BaseException) -> None:
        """End the process: it drains and exits with 1 (2 for a ``ConfigurationError``); its supervisor restarts it."""
        if self._on_failure is not None:
            self._on_failure(self, error)


class Loop(Part):
    """A part that is one task: ``run`` from start to stop.

    ``run`` should return soon after ``self.stopping`` is set; it is cancelled ``grace`` seconds later. If it raises, or
    returns while nobody asked it to, the process ends with exit code 1: a loop that died silently is the worst failure.
    """

    grace: float = 5.0

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            self.name = name
        self.stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """The body."""
        raise NotImplementedError

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name=self.name)
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        self.stopping.set()
        if self._task is None:
            return
        _, pending = await asyncio.wait({self._task}, timeout=self.grace)
        if pending:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def pause(self, seconds: float) -> bool:
        """Sleep, but not past ``stopping``. True while the loop should go on: ``while await self.pause(2.0): ...``."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass
        return not self.stopping.is_set()

    def alive(self) -> str | None:
        if self._task is not None and self._task.done() and not self.stopping.is_set():
            return "ended"
        return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
        elif not self.stopping.is_set():
            self.fail(Defect(f"{self.name} ended by itself"))
