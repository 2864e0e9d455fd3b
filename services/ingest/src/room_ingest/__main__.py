"""The process ``room-ingest``."""

from __future__ import annotations

from room_common.service import run_service
from room_common.settings import load_settings
from room_ingest.app import compose
from room_ingest.settings import IngestSettings


def main() -> None:
    """Run until a signal."""
    run_service("ingest", load_settings(IngestSettings), compose)


if __name__ == "__main__":
    main()
