"""One measured window: a load on a server, its figures, and whether every 200 is in the topic."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from servers import HERE, Running

from room_common.contracts.topics import WEBHOOKS_RAW


@dataclass(frozen=True)
class Window:
    """CPU in milliseconds per request, memory in MiB, latencies in milliseconds."""

    per_second: float
    p50: float
    p99: float
    cpu: float
    memory: float


@dataclass
class Load:
    """``load.c``, compiled into a folder, with the tokens it uses."""

    program: Path
    tokens: Path
    body_bytes: int

    @classmethod
    def build(cls, folder: Path, tokens: list[str], body_bytes: int) -> Load:
        """Compile, and write the tokens down."""
        program, file = folder / "load", folder / "tokens"
        subprocess.run(["cc", "-O2", "-Wall", "-o", program, HERE / "load.c"], check=True)
        file.write_text("\n".join(tokens))
        return cls(program, file, body_bytes)

    def run(
        self, port: int, connections: int, warm: float, seconds: float, mark: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """The load's own figures. ``mark`` gets "begin" and "end" around the measured seconds."""
        numbers = (port, connections, warm, seconds, self.body_bytes)
        command = [str(self.program), *map(str, numbers), str(self.tokens)]
        result: dict[str, Any] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            assert load.stdout is not None
            for line in load.stdout:
                if line.startswith("{"):
                    result = json.loads(line)
                else:
                    mark(line.strip())
        if not result:
            raise SystemExit("the load ended without a result")
        return result


def measure(
    load: Load, server: Running, bootstrap: str, connections: int, warm: float, seconds: float
) -> tuple[Window, str | None]:
    """The figures, and what is wrong with them: records missing or surplus, other answers than 200."""
    before = asyncio.run(end_offsets(bootstrap))
    cpu = memory = 0.0

    def mark(line: str) -> None:
        nonlocal cpu, memory
        cpu = server.cpu() - cpu
        memory = server.memory()

    result = load.run(server.port, connections, warm, seconds, mark)
    grown = asyncio.run(end_offsets(bootstrap)) - before
    wrong = grown != result["ok"] or result["other"] or result["broken"] or result["unanswered"]
    requests = max(1.0, result["per_second"] * seconds)
    window = Window(result["per_second"], result["p50"], result["p99"], cpu / requests * 1000, memory)
    return window, f"{connections} connections: {grown} records for {result}" if wrong else None


async def end_offsets(bootstrap: str) -> int:
    """How many records the topic has ever had."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        await consumer._client.force_metadata_update()
        partitions = await consumer._client._wait_on_metadata(WEBHOOKS_RAW)
        ends = await consumer.end_offsets([TopicPartition(WEBHOOKS_RAW, index) for index in partitions])
        return sum(ends.values())
