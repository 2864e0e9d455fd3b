"""Starts the compactor."""

from __future__ import annotations

from room_common.service.frame import run_service
from room_common.settings import load_settings
from room_compactor.app import compose
from room_compactor.settings import CompactorSettings


def main() -> None:
    """Run until told to stop."""
    run_service("compactor", load_settings(CompactorSettings), compose)


if __name__ == "__main__":
    main()
