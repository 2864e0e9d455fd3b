"""Starts admin."""

from __future__ import annotations

from room_admin.app import compose
from room_admin.settings import AdminSettings
from room_common.service.frame import run_service
from room_common.settings import load_settings


def main() -> None:
    """Run until told to stop."""
    run_service("admin", load_settings(AdminSettings), compose)


if __name__ == "__main__":
    main()
