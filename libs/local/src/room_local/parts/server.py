"""What every part that is one process has in common."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from room_local.parts.processes import Account, PartFailed, memory, spawn, tail, wait_until


class Server(ABC):
    """A server of the stack: one process, its log, its data folder.

    ``start`` returns when the server answers, ``stop`` when it is gone; both in bounded time. ``kill``, ``pause`` and
    ``resume`` are there for tests of faults. A restart keeps address and data.
    """

    name: str
    start_timeout: float = 30.0
    stop_timeout: float = 15.0
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL

    def __init__(self, data: Path, log: Path) -> None:
        self.data = data.absolute()
        self.log = log.absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_before = 0

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line, without the program's own output redirected."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether a client gets an answer now; bounded to a second or two, never raises."""

    def prepare(self) -> None:
        """Make the data folder ready for a start; called before each one."""
        self.data.mkdir(parents=True, exist_ok=True)

    def environment(self) -> Mapping[str, str] | None:
        """The process's environment; None inherits ours."""
        return None

    def account(self) -> Account | None:
        """The system user to run as; None stays who we are."""
        return None

    @property
    def pid(self) -> int | None:
        """The running process, or None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: the signal's number), or None while it runs or before it was started."""
        return self._process.poll() if self._process is not None else None

    @property
    def memory(self) -> int | None:
        """Resident bytes, or None when it does not run."""
        return memory(self.pid)

    def launch(self) -> None:
        """Start the process without waiting for its readiness."""
        if self.pid is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_before = self.log.stat().st_size if self.log.exists() else 0
        self.prepare()
        self._process = spawn(
            self.command(),
            log=self.log,
            env=self.environment(),
            cwd=self.data,
            death_signal=self.death_signal,
            account=self.account(),
        )

    def start(self) -> None:
        """Start and wait until it answers. Raises :class:`PartFailed` with the end of its log."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait for the first answer of a launched server; stops it again when none comes."""
        if wait_until(lambda: self.pid is None or self.answers(), timeout=self.start_timeout):
            if self.pid is not None:
                return
            code = self._process.returncode if self._process is not None else None
            reason = f"ended with code {code} while starting"
        else:
            reason = f"did not answer within {self.start_timeout:.0f} s"
        self.kill()
        raise PartFailed(f"{self.name} {reason}; see {self.log}\n{self.last_words()}")

    def last_words(self, lines: int = 15) -> str:
        """The end of what it logged since it was last launched."""
        return tail(self.log, lines, since=self._log_before)

    def stop(self) -> None:
        """Ask it to stop, kill it when it does not; harmless when it does not run."""
        if self._process is None:
            return
        if self.pid is not None:
            self.terminate()
            try:
                self._process.wait(self.stop_timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def terminate(self) -> None:
        """Only ask it to stop; a frozen one is let go on."""
        self._signal(signal.SIGCONT)
        self._signal(self.stop_signal)

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait(10)

    def pause(self) -> None:
        """Freeze it, and wait until it is: connections stay open, nothing answers."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            # Its threads may still run on other processors when kill returns.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start at the same address with the same data."""
        self.stop()
        self.start()

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)
