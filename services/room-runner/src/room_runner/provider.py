"""The model provider with its circuit: trouble stops new work, and a probe finds out when it is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, EventRejected, Llm
from room_common.service.parts import Loop
from room_runner.domain.circuit import Circuit

_PROBE: Final = ChatRequest(
    tier="standard", messages=({"role": "user", "content": "Answer OK."},), max_output_tokens=16, timeout=20.0
)
_LOOK_SECONDS: Final = 0.25
_log = structlog.get_logger(__name__)


class Provider(Loop):
    """Calls the model for all cycles of this process."""

    name = "provider"

    def __init__(
        self,
        llm: Llm,
        *,
        probe_seconds: float,
        changed: Callable[[bool], None] = lambda closed: None,
    ) -> None:
        super().__init__()
        self._llm = llm
        self._circuit = Circuit(probe_seconds)
        self._closed = asyncio.Event()
        self._closed.set()
        self._changed = changed

    @property
    def closed(self) -> bool:
        """Whether the provider answered last time, so that new work may begin."""
        return self._circuit.closed

    async def complete(self, request: ChatRequest) -> Completion:
        """As :meth:`room_common.llm.port.Llm.complete`; the outcome moves the circuit."""
        try:
            completion = await self._llm.complete(request)
        except DependencyUnavailable as error:
            if self._circuit.closed:
                _log.warning("model provider in trouble", kind=error.kind)
            self._move(self._circuit.troubled(time.monotonic()))
            raise
        except EventRejected:
            self._move(self._circuit.answered())
            raise
        self._move(self._circuit.answered())
        return completion

    async def wait_closed(self, seconds: float, *, unless: asyncio.Event) -> bool:
        """Wait until the provider answers again, at most ``seconds`` and not past ``unless``; whether it does."""
        waits = {asyncio.create_task(event.wait()) for event in (self._closed, unless)}
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._closed.is_set()

    async def run(self) -> None:
        """Probe while the circuit is open."""
        while await self.pause(_LOOK_SECONDS):
            if not self._circuit.probe_due(time.monotonic()):
                continue
            self._circuit = self._circuit.probing(time.monotonic())
            try:
                await self.complete(_PROBE)
            except (DependencyUnavailable, EventRejected) as error:
                _log.info("model provider probed", answer=str(error))
            except Exception:
                _log.exception("the probe of the model provider failed")

    def _move(self, circuit: Circuit) -> None:
        before, self._circuit = self._circuit.closed, circuit
        if circuit.closed:
            self._closed.set()
        else:
            self._closed.clear()
        if before != circuit.closed:
            if circuit.closed:
                _log.info("model provider answers again")
            self._changed(circuit.closed)
