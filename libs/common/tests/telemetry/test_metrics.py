from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from room_common.errors import Defect
from room_common.telemetry.metrics import (
    BUILD_INFO,
    DEPENDENCY_UP,
    Metric,
    catalogue,
    counter,
    define,
    gauge,
    instrument,
    new_registry,
)


def test_the_registry_starts_with_the_build_and_exports_no_created_series() -> None:
    registry = new_registry("matcher")
    metric = define(Metric("room_test_things_total", "counter", "Things.", ("kind",)))
    counter(registry, metric).labels(kind="a").inc()
    text = generate_latest(registry).decode()
    assert 'room_build_info{commit="unknown",service="matcher",version="' in text
    assert 'room_test_things_total{kind="a"} 1.0' in text
    assert "_created" not in text


def test_an_instrument_is_made_once_per_registry() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    assert gauge(one, DEPENDENCY_UP) is gauge(one, DEPENDENCY_UP)
    assert gauge(one, DEPENDENCY_UP) is not gauge(other, DEPENDENCY_UP)


def test_a_name_means_one_thing() -> None:
    define(BUILD_INFO)
    with pytest.raises(Defect, match="twice"):
        define(Metric(BUILD_INFO.name, "gauge", "Something else."))


def test_only_what_is_in_the_catalogue_can_be_made() -> None:
    with pytest.raises(Defect, match="define"):
        instrument(CollectorRegistry(), Metric("room_test_unknown", "gauge", "Unknown."))


def test_the_catalogue_is_sorted() -> None:
    names = [metric.name for metric in catalogue()]
    assert names == sorted(names)
    assert BUILD_INFO.name in names


@pytest.mark.parametrize(
    "arguments",
    [
        ("other_total", "counter", "Help."),
        ("room_things", "counter", "Help."),
        ("room_things_total", "gauge", "Help."),
        ("room_things", "gauge", "no sentence"),
        ("room_things_seconds", "histogram", "Help."),
        ("room_things", "gauge", "Help.", ("instance_id",)),
        ("room_things", "gauge", "Help.", (), (1.0,)),
    ],
)
def test_metrics_that_break_the_rules_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Defect):
        Metric(*arguments)
