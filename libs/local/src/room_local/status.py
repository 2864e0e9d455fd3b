"""What runs of a stack right now, and ending one from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from room_local.files import StackFiles
from room_local.parts.addresses import HOST
from room_local.parts.probe import http_status
from room_local.parts.processes import end_recorded, is_same, memory, wait_until
from room_local.state import ProcessRecord, StackRecord, load, reap, save

_MARGIN_SECONDS = 30.0
"""What a supervisor may need besides, before it is killed."""

Running = Literal["running", "starting", "stopping", "stopped", "failed", "abandoned"]


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process now. ``memory_bytes`` is with its children; ``ready`` is None where nobody can tell."""

    name: str
    kind: str
    state: str
    ready: bool | None
    pid: int | None
    memory_bytes: int | None
    restarts: int
    port: int | None
    operations_port: int | None
    url: str | None
    log: str


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The stack now. ``abandoned``: its supervisor is gone without having stopped it; ``room down`` cleans up."""

    state: Running
    reason: str | None
    supervisor_pid: int | None
    kafka: str | None
    model: str | None
    broker_memory_limit_bytes: int | None
    urls: Mapping[str, str]
    token_file: str | None
    environment_file: str | None
    processes: tuple[ProcessStatus, ...]

    def as_json(self) -> dict[str, Any]:
        """Only what JSON has."""
        return asdict(self)


_NOTHING = StackStatus("stopped", None, None, None, None, None, {}, None, None, ())


def status(directory: Path) -> StackStatus:
    """Look at the stack of ``directory``; a few milliseconds, never raises for one that is broken."""
    files = StackFiles(directory)
    record = load(files)
    if record is None:
        return _NOTHING
    state = _state(record)
    with ThreadPoolExecutor(max_workers=8) as pool:
        processes = tuple(pool.map(_process, record.processes))
    running = state in ("running", "starting")
    return StackStatus(
        state=state,
        reason=record.reason,
        supervisor_pid=record.supervisor_pid if record.supervised else None,
        kafka=record.kafka,
        model=record.model,
        broker_memory_limit_bytes=record.broker_memory_limit,
        urls={one.name: one.url for one in record.processes if one.url is not None} if running else {},
        token_file=record.token_file,
        environment_file=str(files.environment) if running and files.environment.exists() else None,
        processes=processes,
    )


def take_down(directory: Path) -> list[str]:
    """Stop the stack of ``directory``, also one whose supervisor was killed. Returns the names of what was ended."""
    files = StackFiles(directory)
    record = load(files)
    if record is None:
        return []
    alive = [one.name for one in record.processes if _alive(one)]
    if record.supervised and record.supervisor_pid != os.getpid():
        _end_supervisor(record, record.stop_seconds + _MARGIN_SECONDS)
    record = load(files) or record
    reap(record)
    if record.phase not in ("stopped", "failed"):
        save(files, replace(record, phase="stopped"))
    files.environment.unlink(missing_ok=True)
    return alive


def _end_supervisor(record: StackRecord, timeout: float) -> None:
    try:
        os.kill(record.supervisor_pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    if not wait_until(lambda: not record.supervised, timeout=timeout):
        end_recorded(record.supervisor_pid, record.supervisor_started_at, signal.SIGKILL, 5)


def _state(record: StackRecord) -> Running:
    if record.phase in ("stopped", "failed") or record.supervised:
        return record.phase
    return "abandoned" if any(_alive(one) for one in record.processes) else "stopped"


def _alive(record: ProcessRecord) -> bool:
    return record.pid is not None and record.started_at is not None and is_same(record.pid, record.started_at)


def _process(record: ProcessRecord) -> ProcessStatus:
    alive = _alive(record)
    ready = None
    if alive and record.ready_port is not None:
        ready = http_status(HOST, record.ready_port, record.ready_path) == 200
    return ProcessStatus(
        name=record.name,
        kind=record.kind,
        state=record.state if alive or record.state == "restarting" else "stopped",
        ready=ready,
        pid=record.pid if alive else None,
        memory_bytes=memory(record.pid) if alive else None,
        restarts=record.restarts,
        port=record.port,
        operations_port=record.operations_port,
        url=record.url,
        log=record.log,
    )
