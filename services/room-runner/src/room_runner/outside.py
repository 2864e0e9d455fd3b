"""Tools that act outside of Room: what a cycle needs to know of one, whoever provides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

MAX_RESULT_BYTES = 32 * 1024


class ToolFailed(Exception):
    """A call did not succeed; the text is for the model. ``kind`` is bounded, for metrics and logs."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class OutsideTool(Protocol):
    """One tool. ``verified_only``: it is there only for cycles all of whose events are verified."""

    @property
    def name(self) -> str:
        """What the model calls it."""

    @property
    def description(self) -> str:
        """What the model is told of it."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""

    @property
    def verified_only(self) -> bool:
        """Whether it needs verified events."""

    async def call(self, arguments: str) -> str:
        """Do it; ``arguments`` is the model's text. Bounded in time. Raises :class:`ToolFailed`."""


class Outside(Protocol):
    """Where an instance's tools come from."""

    async def tools(self, instance_id: UUID) -> Mapping[str, OutsideTool]:
        """Those that may be called now, by name. Raises ``DependencyUnavailable`` when PostgreSQL is away."""


class NoTools:
    """For instances without tools."""

    async def tools(self, instance_id: UUID) -> Mapping[str, OutsideTool]:
        return {}
