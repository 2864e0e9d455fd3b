"""The stack's memory between commands: ``.room/stack.json``, written by its supervisor."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from room_local.files import StackFiles, write_private
from room_local.parts.processes import end_recorded, is_same, started_at

Phase = Literal["starting", "running", "stopping", "stopped", "failed"]
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process as it was last seen. ``pid`` and ``started_at`` together name it, since pids are used again."""

    name: str
    kind: Literal["part", "service", "stand-in"]
    state: str
    pid: int | None
    started_at: float | None
    restarts: int
    log: str
    stop_signal: int = int(signal.SIGTERM)
    stop_seconds: float = 15.0
    port: int | None = None
    operations_port: int | None = None
    url: str | None = None
    ready_port: int | None = None
    ready_path: str = "/readyz"


@dataclass(frozen=True, slots=True)
class StackRecord:
    """The whole stack. ``supervisor`` is the process of ``room up``."""

    phase: Phase
    supervisor_pid: int
    supervisor_started_at: float
    kafka: str
    model: str
    token_file: str
    broker_memory_limit: int | None = None
    reason: str | None = None
    processes: tuple[ProcessRecord, ...] = field(default=())

    @property
    def stop_seconds(self) -> float:
        """Seconds within which a supervisor has stopped all of it: what goes at once, then one part after the other."""
        by_kind: dict[str, list[float]] = {"service": [0.0], "stand-in": [0.0], "part": [0.0]}
        for one in self.processes:
            by_kind[one.kind].append(one.stop_seconds)
        return max(by_kind["service"]) + max(by_kind["stand-in"]) + sum(by_kind["part"])

    @property
    def supervised(self) -> bool:
        """Whether the supervisor still runs."""
        return is_same(self.supervisor_pid, self.supervisor_started_at)


def save(files: StackFiles, record: StackRecord) -> None:
    """Replace the file at once."""
    write_private(files.state, json.dumps({"version": _VERSION, **asdict(record)}, indent=2) + "\n")


def load(files: StackFiles) -> StackRecord | None:
    """The last record, or None where no stack ever ran (or an incompatible version wrote the file)."""
    try:
        content: dict[str, Any] = json.loads(files.state.read_text())
        if content.pop("version") != _VERSION:
            return None
        processes = tuple(ProcessRecord(**one) for one in content.pop("processes"))
        return StackRecord(**content, processes=processes)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def reap(record: StackRecord) -> list[str]:
    """End what an earlier supervisor left behind; returns the names. In the order in which a supervisor stops them."""
    services, stand_ins, parts = (
        [one for one in reversed(record.processes) if one.kind == kind] for kind in ("service", "stand-in", "part")
    )
    ended: list[str] = []
    for together in (services, stand_ins, *([part] for part in parts)):
        if together:
            with ThreadPoolExecutor(max_workers=len(together)) as pool:
                there = list(pool.map(_end, together))
            ended += [one.name for one, was in zip(together, there, strict=True) if was]
    return ended


def _end(one: ProcessRecord) -> bool:
    return (
        one.pid is not None
        and one.started_at is not None
        and end_recorded(one.pid, one.started_at, signal.Signals(one.stop_signal), one.stop_seconds)
    )


def start_of(pid: int | None) -> float | None:
    """When the process started, for a record."""
    return started_at(pid) if pid is not None else None
