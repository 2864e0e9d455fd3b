"""Watches the processes of a stack and starts again what died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from room_common.errors import RoomError
from room_local.backoff import Backoff, memory_verdict
from room_local.events import Event, Listener
from room_local.parts.processes import wait_until
from room_local.parts.server import Server

Kind = Literal["part", "service", "stand-in"]
"""Parts hold what services work with; stand-ins play what is outside of Room."""

State = Literal["starting", "ready", "restarting", "stopped"]

_STEP_SECONDS = 0.2
_MEMORY_SECONDS = 5.0
_PATIENCE_SECONDS = 5.0
"""A stop that takes longer says for whom it waits."""


@dataclass(slots=True)
class Watched:
    """One server under supervision.

    ``after_restart`` runs when it answers again after a restart; ``memory_limit`` (bytes) is for one that only grows.
    """

    server: Server
    kind: Kind
    after_restart: Callable[[], None] | None = None
    memory_limit: int | None = None
    state: State = "stopped"
    restarts: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    launched: float = 0.0
    due: float = 0.0
    warned: bool = False


class Supervisor:
    """Keeps servers running until told to stop. ``changed`` is called after each change of state, to record it."""

    def __init__(self, listener: Listener, changed: Callable[[], None]) -> None:
        self.watched: list[Watched] = []
        self._listener = listener
        self._changed = changed
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._next_memory_check = 0.0

    def add(self, watched: Watched) -> None:
        """Launch a server and watch it from now on; does not wait for it."""
        self.watched.append(watched)
        self._tell("starting", watched, "starting")
        watched.server.launch()
        watched.state, watched.launched = "starting", time.monotonic()
        self._changed()

    def watch(self) -> None:
        """Watch in a thread of its own until :meth:`stop`."""
        self._thread = threading.Thread(target=self._loop, name="supervisor", daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Look at every server once."""
        now = time.monotonic()
        for watched in self.watched:
            self._step_one(watched, now)
        if now >= self._next_memory_check:
            self._next_memory_check = now + _MEMORY_SECONDS
            for watched in self.watched:
                self._check_memory(watched)

    def stop(self) -> None:
        """Stop everything in bounded time, users before what they use.

        Services go first and all at once: each finishes what it has in hand, and for that may need the model provider,
        Kafka and the database. Then go the stand-ins, then the parts in reverse order.
        """
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(30)
        self._stop_together("service")
        self._stop_together("stand-in")
        for watched in reversed(self.watched):
            if watched.kind == "part":
                watched.server.stop()
                watched.state = "stopped"
        self._changed()

    def _stop_together(self, kind: Kind) -> None:
        group = [watched for watched in reversed(self.watched) if watched.kind == kind]
        for watched in group:
            watched.server.terminate()
        limit = max((watched.server.stop_timeout for watched in group), default=0.0)
        patience = min(_PATIENCE_SECONDS, limit)
        if not _gone(group, patience):
            for watched in group:
                if watched.server.pid is not None:
                    left = watched.server.stop_timeout - patience
                    self._tell("stopping", watched, f"finishes what it has in hand, for {left:.0f} s at most")
            _gone(group, limit - patience)
        for watched in group:
            if watched.server.pid is not None:
                self._tell("warning", watched, f"did not stop within {limit:.0f} s and was killed")
            watched.server.kill()
            watched.state = "stopped"

    def _loop(self) -> None:
        while not self._stopping.wait(_STEP_SECONDS):
            self.step()

    def _step_one(self, watched: Watched, now: float) -> None:
        if watched.state == "restarting":
            if now >= watched.due:
                self._relaunch(watched, now)
        elif watched.state in ("starting", "ready") and watched.server.pid is None:
            self._died(watched, now)
        elif watched.state == "starting" and watched.server.answers():
            self._ready(watched)

    def _died(self, watched: Watched, now: float) -> None:
        watched.backoff, delay = watched.backoff.after(now - watched.launched)
        watched.state, watched.due = "restarting", now + delay
        code = watched.server.exit_code
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        self._tell("restarting", watched, f"{how}; starting it again in {delay:g} s (log: {watched.server.log})")
        self._changed()

    def _relaunch(self, watched: Watched, now: float) -> None:
        watched.restarts += 1
        watched.launched, watched.warned = now, False
        try:
            watched.server.launch()
            watched.state = "starting"
        except (RoomError, OSError) as error:
            watched.backoff, delay = watched.backoff.after(0)
            watched.due = now + delay
            self._tell("warning", watched, f"could not be started: {error}")
        self._changed()

    def _ready(self, watched: Watched) -> None:
        if watched.restarts and watched.after_restart is not None:
            try:
                watched.after_restart()
            except RoomError as error:
                self._tell("warning", watched, str(error))
                return
        watched.state = "ready"
        took = time.monotonic() - watched.launched
        self._tell("ready", watched, f"ready after {took:.1f} s")
        self._changed()

    def _check_memory(self, watched: Watched) -> None:
        resident = watched.server.memory
        if watched.memory_limit is None or resident is None:
            return
        verdict = memory_verdict(resident, watched.memory_limit, warned=watched.warned)
        have, limit = resident >> 20, watched.memory_limit >> 20
        if verdict == "warn":
            watched.warned = True
            self._tell(
                "warning", watched, f"holds {have} MiB in memory; at {limit} MiB it is restarted and forgets all"
            )
        elif verdict == "restart":
            self._tell(
                "warning", watched, f"holds {have} MiB, its limit is {limit} MiB: restarting it, records are lost"
            )
            watched.server.stop()
            self._relaunch(watched, time.monotonic())

    def _tell(
        self, kind: Literal["starting", "ready", "restarting", "warning", "stopping"], watched: Watched, message: str
    ) -> None:
        self._listener(Event(kind, watched.server.name, message))


def _gone(group: Sequence[Watched], timeout: float) -> bool:
    return wait_until(lambda: all(watched.server.pid is None for watched in group), timeout=timeout)
