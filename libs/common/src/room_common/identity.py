"""The impure edge of identifiers: ids from this process's clock and the system's randomness."""

from __future__ import annotations

import os
import time
from uuid import UUID

from room_common.domain.ids import uuid7


def new_id() -> UUID:
    """A fresh UUIDv7."""
    return uuid7(time.time_ns() // 1000, os.urandom(8))
