"""Reading the logs of a stack."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from room_common.errors import ConfigurationError
from room_local.files import StackFiles

_LAST_BYTES = 64 * 1024
_POLL_SECONDS = 0.3


def logs(
    directory: Path, service: str | None = None, *, follow: bool = False, last: int = 40
) -> Iterator[tuple[str, str]]:
    """Lines of log as (name, line): the last ones of each file, then with ``follow`` what comes, for ever.

    Raises :class:`ConfigurationError` when there is no such log.
    """
    files = StackFiles(directory)
    names = sorted(file.stem for file in files.logs.glob("*.log"))
    if service is not None and service not in names:
        known = ", ".join(names) or "nothing has run here yet"
        raise ConfigurationError(f"there is no log of {service!r} in {files.logs}; known: {known}")
    chosen = names if service is None else [service]
    positions: dict[str, int] = {}
    for name in chosen:
        lines, positions[name] = _read(files.log(name), max(0, _size(files.log(name)) - _LAST_BYTES))
        yield from ((name, line) for line in lines[-last:])
    while follow:
        for name in chosen:
            if _size(files.log(name)) < positions[name]:
                positions[name] = 0
            lines, positions[name] = _read(files.log(name), positions[name])
            yield from ((name, line) for line in lines)
        time.sleep(_POLL_SECONDS)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _read(file: Path, position: int) -> tuple[list[str], int]:
    """Whole lines from ``position`` on, and where the next begins."""
    try:
        with file.open("rb") as stream:
            stream.seek(position)
            data = stream.read()
    except OSError:
        return [], position
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), position + len(whole)
