"""Start a service with an armed crash point: ``ROOM_TEST_CRASH=point[:nth] python -m room_testing.armed room_matcher``.

Production code has no way to do this: :mod:`room_common.faults` is armed from here only, before the service's own main.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable

from room_common import faults
from room_testing.processes import CRASH_VARIABLE


def parse(spec: str) -> tuple[str, int]:
    """Read ``point[:nth]``. Raises ``ValueError``."""
    point, colon, nth = spec.rpartition(":")
    if not colon:
        point, nth = spec, "1"
    if not point or not nth.isdecimal() or int(nth) < 1:
        raise ValueError(f"{CRASH_VARIABLE} must be point[:nth] with nth from 1, not {spec!r}")
    return point, int(nth)


def trigger(point: str, nth: int, strike: Callable[[], None]) -> Callable[[str], None]:
    """A hook that calls ``strike`` when ``point`` is reached for the ``nth`` time."""
    reached = 0

    def hook(name: str) -> None:
        nonlocal reached
        if name == point:
            reached += 1
            if reached == nth:
                strike()

    return hook


def _die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Arm, then run the package's own ``main``."""
    package = sys.argv.pop(1)
    spec = os.environ.pop(CRASH_VARIABLE, "")
    if spec:
        faults.arm(trigger(*parse(spec), _die))
    sys.argv[0] = package
    importlib.import_module(f"{package}.__main__").main()


if __name__ == "__main__":
    main()
