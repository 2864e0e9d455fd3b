"""The frame every service runs in."""

from __future__ import annotations

from room_common.service.frame import run_service
from room_common.service.parts import Context, Loop, Part

__all__ = ["Context", "Loop", "Part", "run_service"]
