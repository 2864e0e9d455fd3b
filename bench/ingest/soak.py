"""ingest's memory over minutes of full load."""

from __future__ import annotations

import threading

from servers import INGEST, Running, Servers
from window import Load, measure

ALLOWED = 10.0
"""MiB that it may grow by after the first tenth, in which caches and arenas fill."""
MOST = 100.0


def run(servers: Servers, load: Load, bootstrap: str, *, seconds: float, connections: int) -> int:
    """Print the resident memory over time. The exit code: whether it stayed within bounds, and no answer was wrong."""
    with servers.serving(INGEST) as server:
        seen: list[float] = []
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(server, over, seconds / 60, seen))
        watcher.start()
        window, wrong = measure(load, server, bootstrap, connections, 1.0, seconds)
        over.set()
        watcher.join()
    settled = seen[len(seen) // 10 :]
    growth = settled[-1] - settled[0]
    print(
        f"{connections} connections for {seconds:.0f} s: {window.per_second:,.0f} requests/s, p99 {window.p99:.1f} ms"
    )
    print("RSS MiB: " + " ".join(f"{value:.1f}" for value in seen))
    print(f"growth after the first tenth: {growth:.1f} MiB, most: {max(seen):.1f} MiB")
    if wrong:
        print(f"WRONG {wrong}")
    return 1 if wrong or growth > ALLOWED or max(seen) > MOST else 0


def _watch(server: Running, over: threading.Event, step: float, seen: list[float]) -> None:
    while not over.wait(step):
        seen.append(server.memory())
