"""Starts the scheduler."""

from __future__ import annotations

from room_common.service.frame import run_service
from room_common.settings import load_settings
from room_scheduler.app import compose
from room_scheduler.settings import SchedulerSettings


def main() -> None:
    """Run until told to stop."""
    run_service("scheduler", load_settings(SchedulerSettings), compose)


if __name__ == "__main__":
    main()
