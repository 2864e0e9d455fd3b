"""What the values may say, and what is refused before anything is made."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from room_common.settings import variables
from room_common.settings_reference import find_models

from .conftest import CHART, PROFILES, ROOT, Render

CATALOGUE = json.loads((CHART / "files" / "catalogue.json").read_text())


def test_schema_and_catalogue_are_in_step_with_the_settings() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "schema", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "deploy" / "helm")},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, f"run: make documents\n{checked.stdout}{checked.stderr}"


def test_every_setting_of_every_service_can_be_said_or_is_the_charts() -> None:
    ours = {"HOST", "PORT", "REUSE_PORT"}
    for service, model in find_models().items():
        component = CATALOGUE["components"][service]
        told = {name for fields in component["settings"].values() for name in fields.values()}
        told |= set(component["secrets"].values())
        left = {variable.name for variable in variables(model)} - told
        assert {name.rpartition("__")[2] for name in left} <= ours | {"CA_FILE", "FORMAT"}, service


def test_the_schema_refers_to_nothing_outside() -> None:
    text = (CHART / "values.schema.json").read_text()
    assert json.loads(text)["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert set(re.findall(r'"\$ref": "([^#"]*)#', text)) == {""}


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_are_whole_on_top_of_the_smallest(render: Render, profile: str) -> None:
    assert render(None, "minimal", profile).all


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 3}, "replicas"),
        ({"matcher": {"replicaCount": 3}}, "replicaCount"),
        ({"matcher": {"settings": {"concurency": 3}}}, "concurency"),
        ({"matcher": {"settings": {"concurrency": 0}}}, "concurrency"),
        ({"kafka": {"securityProtocol": "TLS"}}, "securityProtocol"),
        ({"ingest": {"settings": {"port": 80}}}, "port"),
        ({"secrets": {"mount": "volume"}}, "mount"),
        ({"image": {"digest": "latest"}}, "digest"),
    ],
)
def test_typing_mistakes_are_refused_by_name(refused: Callable[..., str], values: dict[str, Any], said: str) -> None:
    assert said in refused(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"publicUrl": "", "kafka": {"bootstrapServers": ""}},
            ["publicUrl is missing", "kafka.bootstrapServers is missing"],
        ),
        ({"secrets": {"existingSecret": "", "optionalKeys": []}}, ["secrets.databaseDsn", "secrets.tokenKeys", "llm"]),
        ({"secrets": {"existingSecret": ""}}, ["optionalKeys"]),
        ({"secrets": {"optionalKeys": []}}, ["no model provider"]),
        ({"matcher": {"replicas": 33}}, ["matcher: more than 32 replicas"]),
        ({"scheduler": {"replicas": 9}}, ["scheduler: more than 8 replicas"]),
        ({"outbound": {"autoscaling": {"type": "keda", "maxReplicas": 17}}}, ["outbound: more than 16 replicas"]),
        ({"matcher": {"autoscaling": {"type": "hpa"}}}, ["hpa is for ingest and admin"]),
        ({"ingest": {"autoscaling": {"type": "keda"}}}, ["keda is for matcher, outbound and runner"]),
        ({"runner": {"autoscaling": {"type": "keda"}}}, ["keda.prometheusAddress"]),
        ({"ingest": {"autoscaling": {"type": "hpa", "minReplicas": 9}}}, ["minReplicas is more than maxReplicas"]),
        ({"kafka": {"securityProtocol": "SASL_SSL"}}, ["secrets.kafkaSaslPassword is missing", "kafka.saslUsername"]),
        ({"kafka": {"ca": {"secret": "a", "configMap": "b"}}}, ["not both"]),
        ({"ingest": {"ingress": {"enabled": True}}}, ["ingest.ingress.host is missing"]),
        (
            {"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
            ["both scrape every pod"],
        ),
        (
            {"monitoring": {"podMonitor": {"enabled": True, "renderMode": "failIfMissing"}}},
            ["the cluster has no monitoring.coreos.com/v1"],
        ),
    ],
)
def test_what_can_not_work_is_refused_with_what_to_do(
    refused: Callable[..., str], values: dict[str, Any], said: list[str]
) -> None:
    why = refused(values)
    for text in said:
        assert text in why


def test_a_local_model_needs_no_key(render: Render) -> None:
    made = render({"secrets": {"optionalKeys": []}, "llm": {"baseUrl": "http://llm:8000/v1"}})
    assert made.environment("runner")["ROOM_LLM__BASE_URL"] == "http://llm:8000/v1"


def test_what_one_service_needs_is_not_asked_of_an_installation_without_it(render: Render) -> None:
    off = {"enabled": False}
    only = {name: off for name in ("ingest", "matcher", "scheduler", "runner", "outbound", "admin")}
    made = render({**only, "publicUrl": "", "topics": {"mode": "none"}})
    assert made.names("Deployment") == {"room-compactor"}
