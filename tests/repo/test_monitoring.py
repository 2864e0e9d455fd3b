"""Metrics, rules, dashboards and runbooks are in step with each other and with the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import typer
from ruamel.yaml import YAML

from room_cli.__main__ import app
from room_common.telemetry.metrics import LABELS
from room_common.telemetry.metrics_reference import find
from room_monitoring import cases
from room_monitoring.dashboards import BOARDS
from room_monitoring.panels import queries

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = YAML(typ="safe").load((DEPLOY / "helm/room/files/alerts.yaml").read_text())["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"] if "alert" in rule]
RECORDS = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("Room*.md"))
SECTIONS = ["Symptom", "Likely causes", "Commands", "Remedy"]
METRICS = {metric.name: metric for metrics in find().values() for metric in metrics}
# What Prometheus itself adds to every series of a target, or a rule of ours to its own.
TARGET_LABELS = {"job", "instance", "namespace", "slo", "le"}
PLACES = {"$namespace": ".*", "$topic": ".*", "$__rate_interval": "5m"}


def _run(*words: str) -> None:
    done = subprocess.run([*words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"run: make documents\n{done.stdout}{done.stderr}"


def test_the_document_of_metrics_is_in_step() -> None:
    _run(sys.executable, "-m", "room_common.telemetry.metrics_reference", "--check", "docs/metrics.md")


def test_rules_their_tests_and_dashboards_are_in_step() -> None:
    _run(sys.executable, "-m", "room_monitoring", "deploy", "--check")


def _selectors(expr: Any) -> Iterator[promql_parser.VectorSelector]:
    """Every selector in an expression."""
    if isinstance(expr, promql_parser.VectorSelector):
        yield expr
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(expr, name, None)
        if inner is not None:
            yield from _selectors(inner)
    for inner in getattr(expr, "args", None) or ():
        yield from _selectors(inner)


def _known(name: str) -> tuple[str, ...]:
    """The labels of a series; fails where nothing exports it."""
    if name in RECORDS:
        return ("slo",)
    for end in ("", "_bucket", "_count", "_sum"):
        metric = METRICS.get(name.removesuffix(end)) if name.endswith(end) else None
        if metric is not None and (metric.kind == "histogram") == bool(end):
            return metric.labels
    raise AssertionError(f"no metric is called {name}")


def _expressions() -> Iterator[str]:
    yield from (rule["expr"] for group in RULES for rule in group["rules"])
    for query in queries(BOARDS):
        for place, value in PLACES.items():
            query = query.replace(place, value)
        yield query


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_rules_and_dashboards_name_what_there_is(expression: str) -> None:
    found = list(_selectors(promql_parser.parse(expression)))
    assert found or expression.startswith("vector(")
    for selector in found:
        labels = _known(str(selector.name))
        for matcher in selector.matchers.matchers:
            assert matcher.name in {*labels, *TARGET_LABELS}, f"{selector.name} has no label {matcher.name}"


def test_a_wrong_name_would_be_found() -> None:
    for wrong in ("rate(room_nothing_total[5m])", "room_event_age_seconds", "room_held_bucket"):
        with pytest.raises(AssertionError, match="no metric"):
            [_known(str(selector.name)) for selector in _selectors(promql_parser.parse(wrong))]


def test_every_label_of_a_metric_is_bounded() -> None:
    for metric in METRICS.values():
        assert all(LABELS[label].most <= 512 for label in metric.labels)
        combined = 1
        for label in metric.labels:
            combined *= 1 if label == "partition" else LABELS[label].most
        assert combined <= 256, metric.name


def test_every_dashboard_is_whole() -> None:
    for file in sorted((DEPLOY / "helm/room/files/dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        assert board["uid"] == f"room-{file.stem}"
        assert {variable["name"] for variable in board["templating"]["list"]} >= {"datasource", "namespace"}
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        assert panels
        for panel in panels:
            assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            assert all(target["exemplar"] for target in panel["targets"])


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    waits = re.fullmatch(r"(\d+)m", alert["for"])
    assert waits is not None and int(waits[1]) >= 5
    assert alert["annotations"]["summary"].endswith(".")
    assert "$value" in alert["annotations"]["description"] or "$labels" in alert["annotations"]["description"]
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"


def test_every_alert_has_a_runbook_and_a_case() -> None:
    names = {alert["alert"] for alert in ALERTS}
    assert {file.stem for file in RUNBOOKS} == names
    assert set(cases.covered()) == names == cases.names()
    index = (ROOT / "docs/runbooks/README.md").read_text()
    assert all(f"({name}.md)" in index for name in names)


@pytest.mark.parametrize("file", RUNBOOKS, ids=lambda file: file.stem)
def test_every_runbook_is_whole_and_its_commands_exist(file: Path) -> None:
    text = file.read_text()
    assert text.startswith(f"# {file.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    commands = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    commands += re.findall(r"`(room [a-z][a-z -]*)`", text)
    assert any(command.startswith("room ") for command in commands)
    for command in commands:
        program, *words = shlex.split(command)
        if program == "room":
            _parse(command, words)
        else:
            assert program == "kubectl", command


def _parse(command: str, words: list[str]) -> None:
    """Find the command and its options as the command line itself would."""
    found: Any = typer.main.get_command(app)
    while words and words[0] in (commands := getattr(found, "commands", {})):
        found = commands[words.pop(0)]
    assert found.name != "room", command
    options = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options, command
    places = [parameter for parameter in found.params if parameter.param_type_name == "argument"]
    given = [word for at, word in enumerate(words) if not word.startswith("-") and not _value(found, words, at)]
    assert len(given) <= len(places), command


def _value(found: Any, words: list[str], at: int) -> bool:
    """Whether a word belongs to the option before it."""
    before = words[at - 1] if at else ""
    return any(before in each.opts and not getattr(each, "is_flag", False) for each in found.params)
