"""Processes that belong to a stack: started on a leash, watched, stopped in bounded time."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import psutil

from room_common.errors import ConfigurationError, RoomError

_LEASH = Path(__file__).with_name("leash.py")
_CLOCK_CORRECTED = 30.0
"""Seconds that corrections of the clock may move the start of a process that runs."""


class PartFailed(RoomError):
    """A part of the stack did not start or died while starting. The message ends with its last lines of log."""


@dataclass(frozen=True, slots=True)
class Account:
    """The system user a process runs as."""

    uid: int
    gid: int


class _Spawner:
    """The one thread that starts processes.

    A leash is bound to the *thread* that starts the process, so short-lived worker threads must not.
    """

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]] = (
            queue.Queue(maxsize=64)
        )
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, future), timeout=10)
        return future.result(timeout=30)

    def _serve(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)


_spawner = _Spawner()


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    account: Account | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``argv`` in a session of its own (a terminal's Ctrl-C does not reach it), appending its output to ``log``.

    ``death_signal`` is what the kernel sends it when this process dies first (Linux). The caller waits for the result.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise ConfigurationError(f"{argv[0]} was not found")
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    leashed = [sys.executable, "-I", "-S", str(_LEASH), str(int(death_signal)), str(uid), str(gid), program, *argv[1:]]

    def job() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )

    return _spawner.run(job)


def tail(log: Path, lines: int = 15, *, since: int = 0) -> str:
    """The last lines of a log after its first ``since`` bytes, for a message about a failed start."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(since, file.tell() - 16_384))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


def started_at(pid: int) -> float | None:
    """When this process started, in seconds since the epoch; None when it is gone. Tells a reused pid from ours."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_same(pid: int, start: float) -> bool:
    """Whether the process recorded as (pid, start) still runs.

    The system tells a start by its wall clock, in whole seconds of the machine's own start: each correction of the
    clock moves it. A pid comes round again only after all others were used.
    """
    now = started_at(pid)
    return now is not None and abs(now - start) < _CLOCK_CORRECTED


def memory(pid: int | None) -> int | None:
    """Bytes of memory of a process with its children; None when it is gone.

    What processes share (PostgreSQL's buffers) is counted once where the system tells (Linux), else in each.
    """
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        return sum(_memory_of_one(one) for one in [process, *process.children(recursive=True)])
    except psutil.Error:
        return None


def _memory_of_one(process: psutil.Process) -> int:
    try:
        return int(getattr(process.memory_full_info(), "pss", 0)) or int(process.memory_info().rss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)


def end_recorded(pid: int, start: float, stop_signal: signal.Signals, timeout: float) -> bool:
    """End a process of an earlier run: ``stop_signal`` first, SIGKILL after ``timeout`` seconds.

    Returns whether there was something to end. Also its children, which would otherwise outlive it.
    """
    if not is_same(pid, start):
        return False
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        process.send_signal(stop_signal)
        _, alive = psutil.wait_procs(family, timeout=timeout)
        for one in alive:
            one.kill()
        psutil.wait_procs(alive, timeout=5)
    except psutil.NoSuchProcess:
        pass
    return True


def wait_until(check: Callable[[], bool], *, timeout: float, interval: float = 0.05) -> bool:
    """Ask ``check`` until it says yes or ``timeout`` seconds are over; returns its last answer."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval)
    return True
