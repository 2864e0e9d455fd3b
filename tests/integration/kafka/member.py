"""A process that consumes: appends each handled offset to a file. ``member.py BOOTSTRAP TOPIC GROUP FILE``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from room_common.kafka.execution import Handling, Limits
from room_common.kafka.executor import Executor
from room_common.kafka.records import Record
from room_common.kafka.settings import KafkaSettings


async def main(bootstrap: str, topic: str, group: str, path: Path) -> None:
    settings = KafkaSettings(
        bootstrap_servers=bootstrap, session_timeout_ms=6_000, heartbeat_interval_ms=1_000, request_timeout_ms=3_000
    )
    with path.open("ab", buffering=0) as handled:

        async def handle(record: Record) -> None:
            await asyncio.sleep(0.2 if record.offset % 50 == 7 else 0.002)
            handled.write(b"%d %d\n" % (record.partition, record.offset))

        async def on_poison(record: Record, error: Exception) -> None:
            os._exit(3)

        limits = Limits(concurrency=8, commit_interval=0.05)
        executor = Executor(
            settings,
            CollectorRegistry(),
            group=group,
            topics=[topic],
            handling=Handling(handle, on_poison),
            limits=limits,
        )
        await executor.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
