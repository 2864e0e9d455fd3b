"""The stack's memory between commands: ``.room/stack.json``, written by its supervisor."""

from __future__ import annotations

import json
import signal
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
    kind: Literal["part", "service"]
    state: str
    pid: int | None
    started_at: float | None
    restarts: int
    log: str
    stop_signal: int = int(signal.SIGTERM)
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


def reap(record: StackRecord, timeout: float = 15.0) -> list[str]:
    """End what an earlier supervisor left behind; returns the names. Services first, then the parts they use."""
    return [
        one.name
        for one in reversed(record.processes)
        if one.pid is not None
        and one.started_at is not None
        and end_recorded(one.pid, one.started_at, signal.Signals(one.stop_signal), timeout)
    ]


def start_of(pid: int | None) -> float | None:
    """When the process started, for a record."""
    return started_at(pid) if pid is not None else None
