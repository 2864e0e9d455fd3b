"""The intervals of a lease have to fit each other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from room_runner.settings import CycleSettings


@pytest.mark.parametrize(
    ("renew", "fence", "lease", "fits"),
    [(8, 20, 30, True), (10, 20, 21, True), (11, 20, 30, False), (8, 30, 30, False), (8, 40, 30, False)],
)
def test_a_worker_fences_itself_before_its_lease_ends_and_renews_twice_before(
    renew: float, fence: float, lease: float, fits: bool
) -> None:
    values = {"renew_seconds": renew, "fence_seconds": fence, "lease_seconds": lease}
    if fits:
        assert CycleSettings(**values).lease_seconds == lease
    else:
        with pytest.raises(ValidationError, match="2 x renew_seconds <= fence_seconds < lease_seconds"):
            CycleSettings(**values)
