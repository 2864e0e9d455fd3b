"""A short look with Schemathesis; ``make fuzz-api`` looks for as long as one likes."""

from __future__ import annotations

import pytest

from room_testing.administering import Administering
from room_testing.api_fuzz import fuzz

pytestmark = pytest.mark.integration


async def test_no_answer_is_a_5xx_or_undocumented(own_admin: Administering) -> None:
    assert await fuzz(own_admin, minutes=0.2, first_seed=2) == 0
