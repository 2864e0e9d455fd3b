"""CPU time of server processes, for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from room_testing.parts import Parts


def of_postgres(parts: Parts) -> list[psutil.Process]:
    """The processes of the PostgreSQL started here. Raises ``LookupError`` when it is somebody else's."""
    pid = parts.postgres().pid
    assert pid is not None
    server = psutil.Process(pid)
    return [server, *server.children(recursive=True)]


def seconds(processes: Sequence[psutil.Process]) -> float:
    """What they have used up to now."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # A server counts its children that have ended: connections come and go in between.
        total += times.user + times.system + times.children_user + times.children_system
    return total
