"""Scraping, rules and dashboards."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from .conftest import CHART, Render


def _endpoint(render: Render, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    name = kind[0].lower() + kind[1:]
    made = render({"monitoring": {name: {"enabled": True, "renderMode": "alwaysRender", "labels": {"release": "x"}}}})
    [monitor] = made.kind(kind)
    assert monitor["metadata"]["labels"]["release"] == "x"
    [endpoint] = monitor["spec"].get("podMetricsEndpoints", monitor["spec"].get("endpoints"))
    return monitor, endpoint


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_every_pod_is_scraped_and_its_series_say_which_service(render: Render, kind: str) -> None:
    _, endpoint = _endpoint(render, kind)
    assert (endpoint["port"], endpoint["path"]) == ("operations", "/metrics")
    assert endpoint["honorLabels"] is True
    relabelled = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"]}
    assert relabelled["service"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_component"]


def test_a_service_monitor_finds_all_pods_through_one_service(render: Render) -> None:
    monitor, _ = _endpoint(render, "ServiceMonitor")
    made = render(
        {"monitoring": {"serviceMonitor": {"enabled": True, "renderMode": "alwaysRender", "labels": {"release": "x"}}}}
    )
    service = made.get("Service", "room-operations")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    for deployment in made.kind("Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
    [port] = service["spec"]["ports"]
    assert port["targetPort"] == "operations"


def test_custom_kinds_are_left_out_where_the_cluster_does_not_know_them(render: Render) -> None:
    made = render({"monitoring": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}})
    assert made.kind("PodMonitor") == made.kind("PrometheusRule") == []


def test_rules_are_those_of_the_file(render: Render) -> None:
    made = render({"monitoring": {"prometheusRule": {"enabled": True, "renderMode": "alwaysRender"}}})
    [rule] = made.kind("PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert rule["spec"]["groups"]


def test_dashboards_are_those_of_the_files(render: Render) -> None:
    made = render({"monitoring": {"dashboards": {"enabled": True}}})
    files = {path.stem: json.loads(path.read_text()) for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert files
    for name, dashboard in files.items():
        found = made.get("ConfigMap", f"room-dashboard-{name}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(json.dumps(found)) < 1_000_000
        [content] = found["data"].values()
        assert json.loads(content) == dashboard
