"""Named crash points. They do nothing unless the test package arms them, and no setting can.

A crash point marks a border between two durable steps. Tests start a service through a launcher of theirs, which calls
:func:`arm` before the service's own ``main``; production code has no way to do so.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None]) -> None:
    """Call ``hook`` with the name of every crash point reached from now on. For the test package only."""
    global _hook
    _hook = hook


def crash_point(name: str) -> None:
    """Mark a border between durable steps, for example ``matcher.before_commit``."""
    if _hook is not None:
        _hook(name)
