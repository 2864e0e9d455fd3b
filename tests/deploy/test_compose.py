"""docker-compose.yml says what the code has, as far as can be told without an engine.

`make compose` reads the file as Docker does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.main import get_command

from room_admin.settings import AdminSettings
from room_cli.__main__ import app
from room_common.settings import parse_settings
from room_common.settings_reference import find_models
from room_ingest.settings import IngestSettings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "room"}
_GIVEN = {
    "ROOM_TOKEN_KEYS": "a:" + "1" * 64,
    "ROOM_ENCRYPTION__KEYS": "a:" + "2" * 64,
    "ROOM_LLM__API_KEY": "key",
}


def _filled(environment: Mapping[str, str]) -> dict[str, str]:
    def value(found: re.Match[str]) -> str:
        name, _, default = found[1].partition(":")
        return _GIVEN.get(name) or (default[1:] if default.startswith("-") else "")

    return {name: re.sub(r"\$\{([^}]*)\}", value, str(text)) for name, text in environment.items()}


def _models() -> dict[str, Any]:
    scripts = {}
    for file in ROOT.glob("services/*/pyproject.toml"):
        scripts.update(tomllib.loads(file.read_text())["project"]["scripts"])
    by_package = {f"room_{name}": model for name, model in find_models().items()}
    return {script: by_package[target.partition(".")[0]] for script, target in scripts.items()}


def test_every_service_runs_and_reads_what_it_is_given() -> None:
    models = _models()
    commands = {service["command"][0]: name for name, service in OURS.items() if len(service["command"]) == 1}
    assert commands.keys() == models.keys()
    for command, name in commands.items():
        parse_settings(models[command], _filled(OURS[name]["environment"]))


def test_the_jobs_run_commands_that_exist() -> None:
    command = get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    jobs = [service["command"] for service in OURS.values() if len(service["command"]) > 1]
    assert [job[:2] for job in jobs] == [["room", "migrate"], ["room", "topics"]]
    for _, name, *options in jobs:
        assert set(options) <= {option for parameter in command.commands[name].params for option in parameter.opts}


def test_ports_are_the_defaults_and_on_the_loopback() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    for given in ports.values():
        assert all(port.startswith("127.0.0.1:") for port in given)
    environment = _filled(OURS["ingest"]["environment"])
    ingest, admin = parse_settings(IngestSettings, environment), parse_settings(AdminSettings, environment)
    assert ports["ingest"][0].endswith(f":{ingest.ingest.port}")
    assert ports["admin"][0].endswith(f":{admin.admin.port}")
    probe = OURS["ingest"]["healthcheck"]["test"][-1]
    assert f":{ingest.operations.port}/readyz" in probe


def test_all_of_ours_are_hardened_and_wait_for_schema_and_topics() -> None:
    for name, service in OURS.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        if len(service["command"]) == 1:
            waits = service["depends_on"]
            assert {"migrate", "topics"} <= waits.keys(), name
            assert service["healthcheck"]["test"], name


def test_images_are_pinned_and_servers_are_asked_for_their_health() -> None:
    for name, service in SERVICES.items():
        if service["image"] != "room":
            assert re.search(r":v?\d+\.\d+", service["image"]), name
    for name in ("kafka", "postgres", "redis", "prometheus", "grafana"):
        assert SERVICES[name]["healthcheck"]["test"]


def test_mounted_files_are_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists(), source


def test_prometheus_scrapes_every_service_under_the_name_that_it_has() -> None:
    config = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
    [job] = config["scrape_configs"]
    targets = {group["labels"]["service"]: group["targets"] for group in job["static_configs"]}
    running = {name for name, service in OURS.items() if len(service["command"]) == 1}
    port = parse_settings(IngestSettings, _filled(OURS["ingest"]["environment"])).operations.port
    assert targets == {name: [f"{name}:{port}"] for name in running}


def test_traces_go_through_the_collector_to_the_view() -> None:
    collector = yaml.safe_load((ROOT / "deploy/compose/collector.yaml").read_text())
    endpoint = OURS["matcher"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    listens = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert endpoint.rpartition(":")[2] == listens.rpartition(":")[2]
    host = collector["exporters"]["otlp"]["endpoint"].partition(":")[0]
    assert {"collector", host} <= SERVICES.keys()


@pytest.mark.integration
def test_ingest_is_only_the_overflow_tables_role(postgres_dsn: str) -> None:
    dsn = _filled(OURS["ingest"]["environment"])["ROOM_OVERFLOW__DSN"]
    options = str(conninfo_to_dict(dsn)["options"])
    with psycopg.connect(make_conninfo(postgres_dsn, options=options)) as connection:
        assert connection.execute("select current_user").fetchone() == ("room_ingest_overflow",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select 1 from instances")
