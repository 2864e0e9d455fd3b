"""What happens to a stack, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["starting", "ready", "restarting", "warning", "note", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Event:
    """One happening. ``subject`` is a part's or service's name, or ``stack``; ``message`` a sentence for a person."""

    kind: Kind
    subject: str
    message: str


Listener = Callable[[Event], None]
"""Called from the thread that starts the stack or from the one that watches it; must not block."""
