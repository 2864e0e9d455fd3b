"""Limits on what costs more than a look into the database: model calls, reading Kafka, messages to people."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from fastapi import Depends, Request

from room_admin.access import Operator
from room_admin.allowance import Allowance
from room_admin.problems import Problem
from room_common.postgres.access import Caller

Kind = Literal["read", "replay", "write"]

LIMITS: Final[dict[Kind, tuple[int, float]]] = {
    "read": (60, 0.5),  # payloads, transcripts and lives
    "replay": (20, 2.0),
    "write": (10, 3.0),  # answers to an agent, and test messages
}
"""Calls at once, and seconds after which one more is free; for each caller, in each process."""


def allowances() -> dict[Kind, Allowance]:
    """What a process keeps of its callers."""
    return {kind: Allowance(burst, seconds) for kind, (burst, seconds) in LIMITS.items()}


def spends(kind: Kind) -> Any:
    """A dependency of a route: 429 with Retry-After where the caller has used up what is allowed."""

    async def check(request: Request, caller: Operator) -> None:
        spend(request, kind, caller)

    return Depends(check)


def spend(request: Request, kind: Kind, caller: Caller) -> None:
    """Count a call. Raises ``Problem`` 429 where the caller has used up what is allowed."""
    kept: dict[Kind, Allowance] = request.app.state.allowances
    if wait := kept[kind].take(caller.name):
        raise Problem(429, "these calls are expensive, and there were many; try again", retry_after=math.ceil(wait))
