"""Where a stack keeps what: everything under ``.room`` in the folder it was started in."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

_LONGEST_LOG = 16 << 20


@dataclass(frozen=True, slots=True)
class StackFiles:
    """The files of the stack in ``directory``."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory.absolute() / ".room"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def state(self) -> Path:
        return self.root / "stack.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def environment(self) -> Path:
        return self.root / "env"

    @property
    def token(self) -> Path:
        return self.root / "operator-token"

    @property
    def token_keys(self) -> Path:
        return self.keys / "token-keys"

    @property
    def encryption_keys(self) -> Path:
        return self.keys / "encryption-keys"

    def data(self, part: str) -> Path:
        """The data folder of one part."""
        return self.root / part

    def log(self, name: str) -> Path:
        """The log file of one part or service."""
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make the folders, and once and for all the keys and the operator's token, which nobody else can read.

        A log of more than 16 MiB is put aside.
        """
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.logs.mkdir(exist_ok=True, mode=0o700)
        self.keys.mkdir(exist_ok=True, mode=0o700)
        for log in self.logs.glob("*.log"):
            if log.stat().st_size > _LONGEST_LOG:
                log.replace(log.with_suffix(".log.old"))
        (self.root / ".gitignore").write_text("*\n")
        for file in (self.token_keys, self.encryption_keys):
            _write_once(file, f"local:{secrets.token_hex(32)}\n")
        _write_once(self.token, f"room_{secrets.token_urlsafe(32)}\n")


def write_private(file: Path, text: str) -> None:
    """Replace a file at once, readable by its owner only."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(descriptor, "w") as temporary:
        temporary.write(text)
    Path(name).replace(file)


def _write_once(file: Path, text: str) -> None:
    if file.exists():
        file.chmod(0o600)
    else:
        write_private(file, text)
