"""The conservation run, small; ``make conserve`` runs the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from room_testing.conservation import Conservation
from room_testing.parts import Parts, choose

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.apache, pytest.mark.timeout(400)]


async def test_what_was_answered_200_is_the_sum_of_the_outcomes(server_folder: Path) -> None:
    parts = Parts(choose({"ROOM_TEST_PARTS": "apache"}, lambda: None))
    try:
        report = await Conservation(parts, server_folder, deliveries=2_000, seed=7).run()
    finally:
        parts.close()
    print("\n".join(report.table))
    assert report.problems == []
    assert report.answered > 1_900
