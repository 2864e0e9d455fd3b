"""The chart, rendered by Helm itself (through its SDK), as objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "room"
PROFILES = sorted(path.stem for path in (CHART / "profiles").glob("*.yaml"))

Manifest = dict[str, Any]
Values = dict[str, Any]


class Objects:
    """What the chart makes of some values."""

    def __init__(self, manifests: Mapping[str, str]) -> None:
        self.notes = next((text for name, text in manifests.items() if name.endswith("NOTES.txt")), "")
        self.all: list[Manifest] = [
            found
            for name, text in manifests.items()
            if not name.endswith(".txt")
            for found in yaml.safe_load_all(text)
            if found
        ]

    def kind(self, kind: str) -> list[Manifest]:
        return [found for found in self.all if found["kind"] == kind]

    def names(self, kind: str) -> set[str]:
        return {found["metadata"]["name"] for found in self.kind(kind)}

    def get(self, kind: str, name: str) -> Manifest:
        [found] = [found for found in self.kind(kind) if found["metadata"]["name"] == name]
        return found

    def deployment(self, key: str) -> Manifest:
        return self.get("Deployment", f"room-{key}")

    def pod(self, key: str) -> Manifest:
        spec: Manifest = self.deployment(key)["spec"]["template"]["spec"]
        return spec

    def container(self, key: str) -> Manifest:
        first: Manifest = self.pod(key)["containers"][0]
        return first

    def environment(self, key: str) -> dict[str, Any]:
        return {item["name"]: item.get("value", item.get("valueFrom")) for item in self.container(key)["env"]}

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Every pod that anything here makes."""
        for found in self.all:
            name = f"{found['kind']}/{found['metadata']['name']}"
            if found["kind"] == "Pod":
                yield name, found["spec"]
            elif found["kind"] in ("Deployment", "Job"):
                yield name, found["spec"]["template"]["spec"]


class Render:
    """Renders ``profile`` with ``values`` over it. Raises ``helm_python.HelmError`` where Helm would stop."""

    def __init__(self, chart: helm_python.Chart) -> None:
        self._chart = chart
        self._known: dict[str, Objects] = {}

    def __call__(self, values: Values | None = None, *profiles: str, release: str = "room") -> Objects:
        merged: Values = {}
        for profile in profiles or ("minimal",):
            merge(merged, yaml.safe_load((CHART / "profiles" / f"{profile}.yaml").read_text()))
        merge(merged, values or {})
        key = json.dumps([merged, release], sort_keys=True)
        if key not in self._known:
            self._known[key] = Objects(self._chart.render(merged, name=release, namespace="room"))
        return self._known[key]


def merge(into: Values, values: Values) -> None:
    """As ``helm -f`` does with several files."""
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


@pytest.fixture(scope="session")
def render() -> Iterator[Render]:
    """The chart, loaded once."""
    with helm_python.Chart.load(str(CHART)) as chart:
        yield Render(chart)


@pytest.fixture(scope="session")
def everything(render: Render) -> Objects:
    """Production, with every kind that a cluster may lack."""
    return render(None, "minimal", "production", "gitops")


@pytest.fixture
def refused(render: Render) -> Callable[..., str]:
    """Why values are refused."""

    def why(values: Values, *profiles: str) -> str:
        with pytest.raises(helm_python.HelmError) as caught:
            render(values, *profiles)
        return str(caught.value)

    return why
