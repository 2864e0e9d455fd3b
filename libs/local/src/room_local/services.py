"""Which processes a stack consists of besides its parts. Adding one is adding a line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """``python -m module``.

    With a ``section`` it listens on a port of its own, set by ROOM_<SECTION>__HOST and __PORT. ``arguments`` are its
    command line; ``{port}`` in them is its own port too and ``{data}`` its folder under ``.room``. It is ready when
    ``ready_path`` says 200, on the operations port of the service frame, or with ``operations=False`` on its own.
    """

    name: str
    module: str
    section: str | None = None
    arguments: tuple[str, ...] = ()
    operations: bool = True
    ready_path: str = "/readyz"
    only_in_rehearsal: bool = False

    @property
    def listens(self) -> bool:
        """Whether it has a port of its own."""
        return self.section is not None or "{port}" in self.arguments

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
    ServiceSpec("ingest", "room_ingest", section="INGEST"),
    ServiceSpec("matcher", "room_matcher"),
    ServiceSpec("scheduler", "room_scheduler"),
    ServiceSpec("room-runner", "room_runner"),
    ServiceSpec("outbound", "room_outbound"),
    ServiceSpec("admin", "room_admin", section="ADMIN"),
)
"""The services of Room, after the two that stand in for a model provider and a person's chat program."""
