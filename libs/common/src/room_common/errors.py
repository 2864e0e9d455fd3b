"""The errors of Room, split by what the caller should do.

``RoomError``
    ``DependencyUnavailable``  wait and try again; spends no attempt (PostgreSQL, Kafka, Redis, a model provider, a key)
    ``DeadLetter``             this record or event can't succeed; park it where an operator sees it
    ``Refused``                drop with a recorded reason; the caller's input is at fault and says why
    ``LeaseLost``              stop at once and write nothing more
    ``Defect``                 a state that can't be; crash and let the supervisor restart the process
    ``ConfigurationError``     a setting or a file is wrong; tell the operator, exit 2

Messages never contain tokens, credentials or payloads (design promise P12).
"""

from __future__ import annotations


class RoomError(Exception):
    """Root of everything Room raises on purpose."""


class DependencyUnavailable(RoomError):
    """Something that Room needs does not answer; the same work succeeds later.

    ``dependency`` is a bounded name (``postgresql``, ``kafka``, ``redis``, ``llm``, ``key``, ``provider``), ``kind``
    says how it failed (``connect``, ``timeout``, ``rate_limit``...), ``retry_after`` is the dependency's own wish in
    seconds, ``at`` the address that was tried, without user and password: :func:`room_common.advice.explain` tells all.
    """

    def __init__(
        self,
        dependency: str,
        kind: str = "unavailable",
        *,
        retry_after: float | None = None,
        at: str | None = None,
    ) -> None:
        super().__init__(f"{dependency}: {kind}")
        self.dependency = dependency
        self.kind = kind
        self.retry_after = retry_after
        self.at = at


class DeadLetter(RoomError):
    """This record fails by its own fault. ``kind`` is bounded, ``status`` an optional number of the peer's answer."""

    def __init__(self, kind: str, status: int | None = None) -> None:
        super().__init__(kind if status is None else f"{kind} ({status})")
        self.kind = kind
        self.status = status


class Refused(RoomError):
    """Input that can't be used. ``reason`` is a bounded name; ``message`` tells a person what to do."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason


class LeaseLost(RoomError):
    """The room's epoch moved on: another worker owns it now."""


class Defect(RoomError):
    """An invariant does not hold."""


class ConfigurationError(RoomError):
    """A setting, file or argument is wrong. The message names it and says what to do."""
