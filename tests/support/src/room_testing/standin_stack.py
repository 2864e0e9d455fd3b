"""``room`` with services that do nothing, for tests of the stack: ``python -m room_testing.standin_stack up``."""

from __future__ import annotations

from room_cli import stack_commands
from room_cli.__main__ import main
from room_local import stack
from room_local.services import ServiceSpec

STANDINS = (
    ServiceSpec("ingest", "room_testing.standin", section="INGEST"),
    ServiceSpec("matcher", "room_testing.standin"),
    ServiceSpec("admin", "room_testing.standin", section="ADMIN"),
)

if __name__ == "__main__":
    stack_commands.PROGRAM = "room_testing.standin_stack"
    setattr(stack, "SERVICES", STANDINS)  # noqa: B010 - not part of its interface
    main()
