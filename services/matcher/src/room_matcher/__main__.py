"""room-matcher: walks each delivery through the cascade and asks a fast model what it matches."""

from __future__ import annotations

from typing import NoReturn

from room_common.service.frame import run_service
from room_common.settings import load_settings
from room_matcher.app import compose
from room_matcher.settings import MatcherSettings


def main() -> NoReturn:
    """Run the service until it is told to stop."""
    run_service("matcher", load_settings(MatcherSettings), compose)


if __name__ == "__main__":
    main()
