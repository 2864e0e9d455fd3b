"""Which processes a stack consists of besides its parts. Adding one is adding a line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

_SETTLE_SECONDS: Final = 45.0
"""What a service needs besides its drain: to give back, commit and close."""
_LONGEST_DRAIN: Final = 3_600.0
_STAND_IN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """``python -m module``.

    With a ``section`` it listens on a port of its own, set by ROOM_<SECTION>__HOST and __PORT. ``arguments`` are its
    command line; ``{port}`` in them is its own port too and ``{data}`` its folder under ``.room``. It is ready when
    ``ready_path`` says 200, on the operations port of the service frame, or with ``operations=False`` on its own: then
    it is a stand-in for something outside of Room, and is stopped after the services that call it. ``drain_seconds``
    is how long a service may take to finish what it has in hand; ``drain_variable`` is the setting that says otherwise.
    """

    name: str
    module: str
    section: str | None = None
    arguments: tuple[str, ...] = ()
    operations: bool = True
    ready_path: str = "/readyz"
    only_in_rehearsal: bool = False
    drain_variable: str | None = None
    drain_seconds: float = 45.0

    @property
    def listens(self) -> bool:
        """Whether it has a port of its own."""
        return self.section is not None or "{port}" in self.arguments

    @property
    def kind(self) -> Literal["service", "stand-in"]:
        """What it is to the stack."""
        return "service" if self.operations else "stand-in"

    def stop_seconds(self, environment: Mapping[str, str]) -> float:
        """Seconds after which a stop becomes a kill: longer than the service itself takes at most."""
        if not self.operations:
            return _STAND_IN_SECONDS
        try:
            drain = float(environment.get(self.drain_variable or "") or self.drain_seconds)
        except ValueError:
            drain = self.drain_seconds  # the service itself refuses to start with it
        return min(max(self.drain_seconds, drain), _LONGEST_DRAIN) + _SETTLE_SECONDS

    def command_line(self, port: int | None, data: str) -> list[str]:
        """Its arguments with port and folder filled in."""
        values = {"{port}": str(port), "{data}": data}
        return [values.get(argument, argument) for argument in self.arguments]


SERVICES: tuple[ServiceSpec, ...] = (
    ServiceSpec(
        "rehearsal",
        "room_local.rehearsal",
        arguments=("--port", "{port}"),
        operations=False,
        ready_path="/",
        only_in_rehearsal=True,
    ),
    ServiceSpec(
        "inbox",
        "room_local.inbox",
        arguments=("--port", "{port}", "--directory", "{data}"),
        operations=False,
        ready_path="/",
    ),
    ServiceSpec("ingest", "room_ingest", section="INGEST", drain_variable="ROOM_INGEST__DRAIN_SECONDS"),
    ServiceSpec("matcher", "room_matcher"),
    ServiceSpec("scheduler", "room_scheduler"),
    ServiceSpec("room-runner", "room_runner", drain_variable="ROOM_RUNNER__DRAIN_SECONDS"),
    ServiceSpec("outbound", "room_outbound"),
    ServiceSpec("compactor", "room_compactor"),
    ServiceSpec("admin", "room_admin", section="ADMIN"),
)
"""The services of Room, after the two that stand in for a model provider and a person's chat program."""
