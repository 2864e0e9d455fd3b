"""The rehearsal model as a process, with its faults."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx2

from room_local.parts.addresses import HOST, free_port
from room_local.parts.probe import http_status
from room_local.parts.server import Server


class RehearsalModel(Server):
    """``start``, ``stop`` and ``restart`` keep the address."""

    name = "rehearsal"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "rehearsal.log")
        self.port = free_port()

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "room_local.rehearsal", "--port", str(self.port)]

    def answers(self) -> bool:
        return http_status(HOST, self.port, "/v1/models") == 200

    @property
    def url(self) -> str:
        """What ``ROOM_LLM__BASE_URL`` is."""
        return f"http://{HOST}:{self.port}/v1"

    async def faults(self, *faults: dict[str, object]) -> None:
        """These from now on; none: everything is well again."""
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"http://{HOST}:{self.port}/rehearsal/faults", json={"faults": list(faults)})
            assert answer.status_code == 200, answer.text

    async def state(self) -> dict[str, object]:
        """Its counters."""
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"http://{HOST}:{self.port}/rehearsal/state")
            found: dict[str, object] = answer.json()
            return found

    async def restarted(self) -> None:
        """Start it again."""
        await asyncio.to_thread(self.start)
