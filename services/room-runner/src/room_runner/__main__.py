"""Starts room-runner."""

from __future__ import annotations

from room_common.service.frame import run_service
from room_common.settings import load_settings
from room_runner.app import compose
from room_runner.settings import RunnerSettings


def main() -> None:
    """Run until told to stop."""
    run_service("room-runner", load_settings(RunnerSettings), compose)


if __name__ == "__main__":
    main()
