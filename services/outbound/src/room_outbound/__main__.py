"""Starts outbound."""

from __future__ import annotations

from room_common.service.frame import run_service
from room_common.settings import load_settings
from room_outbound.app import compose
from room_outbound.settings import OutboundSettings


def main() -> None:
    """Run until told to stop."""
    run_service("outbound", load_settings(OutboundSettings), compose)


if __name__ == "__main__":
    main()
