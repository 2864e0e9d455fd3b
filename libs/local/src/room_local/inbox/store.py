"""The inbox's messages: in memory, and one JSON line each in a file that is synced before a message counts as taken.

The file is read at the start. A line torn by a crash was never acknowledged and is cut off. Only the newest messages
are kept: once the file has twice as many lines it is written anew beside the old one and put in its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson

from room_common.errors import ConfigurationError

FILE_NAME = "messages.jsonl"
KEPT_MESSAGES = 5_000


@dataclass(frozen=True, slots=True)
class Message:
    """A message the person got. ``seq`` counts arrivals from 1; ``id`` is the sender's, kept once."""

    seq: int
    id: str
    room: str
    target: str
    text: str = field(repr=False)
    created_at: str
    received_at: str

    @property
    def message_id(self) -> str:
        """The inbox's own name for it, which the sender records."""
        return f"local-{self.seq}"

    def view(self) -> dict[str, object]:
        """As the API shows it."""
        return {**asdict(self), "message_id": self.message_id}


class Store:
    """Blocking: call :meth:`add` from one thread at a time. Raises OSError where the disk does."""

    def __init__(self, directory: Path, *, kept: int = KEPT_MESSAGES) -> None:
        self._kept = kept
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / FILE_NAME
        self._messages: dict[str, Message] = {}
        self._lines = 0
        self._seq = 0
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._load()
        _sync_directory(directory)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def add(self, *, id: str, room: str, target: str, text: str, created_at: str) -> tuple[Message, bool]:
        """Take a message, durably. A known id returns the message already there, and False."""
        known = self._messages.get(id)
        if known is not None:
            return known, False
        received_at = datetime.now(UTC).isoformat()
        message = Message(self._seq + 1, id, room, target, text, created_at, received_at)
        line = orjson.dumps(asdict(message)) + b"\n"
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            _write(self._file, line)
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)  # or the next line would be glued to half of this one
            raise
        self._seq = message.seq
        self._lines += 1
        self._remember(message)
        if self._lines >= 2 * self._kept:
            self._rewrite()
        return message, True

    def rooms(self) -> tuple[str, ...]:
        """The rooms that wrote, the latest first."""
        return tuple(dict.fromkeys(message.room for message in reversed(self._messages.values())))

    def messages(self, *, room: str | None = None, after: int = 0) -> Iterator[Message]:
        """The kept messages that arrived after number ``after``, oldest first."""
        return (m for m in list(self._messages.values()) if m.seq > after and (room is None or m.room == room))

    def latest(self) -> int:
        """The number of the newest message, 0 without any."""
        return self._seq

    def _remember(self, message: Message) -> None:
        self._messages[message.id] = message
        while len(self._messages) > self._kept:
            del self._messages[next(iter(self._messages))]

    def _load(self) -> None:
        good = 0
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), 1):
            try:
                message = Message(**orjson.loads(line))
            except (orjson.JSONDecodeError, TypeError):
                if line.endswith(b"\n"):
                    raise ConfigurationError(
                        f"{self._path}, line {number}: not a message; move the file away"
                    ) from None
                break
            if not line.endswith(b"\n"):
                break
            good += len(line)
            self._lines += 1
            self._seq = max(self._seq, message.seq)
            self._remember(message)
        os.ftruncate(self._file, good)

    def _rewrite(self) -> None:
        beside = self._path.with_suffix(".new")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(file, b"".join(orjson.dumps(asdict(message)) + b"\n" for message in self._messages.values()))
            os.fsync(file)
            beside.replace(self._path)
        except OSError:
            os.close(file)
            return  # the old file is whole; the next message tries again
        _sync_directory(self._path.parent)
        os.close(self._file)
        self._file = file
        self._lines = len(self._messages)


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _sync_directory(directory: Path) -> None:
    """So that a new file's name is as durable as its content."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
