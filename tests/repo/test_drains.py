"""The stack on one machine gives every service the time that the service itself would take to stop."""

from __future__ import annotations

import pytest

from room_common.settings import ServiceSettings, variables
from room_common.settings_reference import find_models
from room_local.services import SERVICES

SPECS = {spec.module.removeprefix("room_"): spec for spec in SERVICES if spec.kind == "service"}


@pytest.mark.parametrize(("service", "model"), find_models().items())
def test_a_kill_comes_after_the_drain(service: str, model: type[ServiceSettings]) -> None:
    drains = [variable for variable in variables(model) if variable.path[-1] == "drain_seconds"]
    spec = SPECS[service]
    assert [variable.name for variable in drains] == [name for name in [spec.drain_variable] if name is not None]
    for variable in drains:
        assert spec.stop_seconds({}) > variable.field.default
