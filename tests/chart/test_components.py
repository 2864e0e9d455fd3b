"""The services, as the chart runs them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from room_common.settings import parse_settings
from room_common.settings_reference import SERVICES, find_models

from .conftest import PROFILES, ROOT, Objects, Render

CONSUMERS = ("matcher", "scheduler", "runner", "outbound", "compactor")


def test_each_service_is_a_deployment_with_an_account_of_its_own(render: Render) -> None:
    made = render()
    assert made.names("Deployment") == {f"room-{service}" for service in SERVICES} == made.names("ServiceAccount")
    for service in SERVICES:
        pod = made.pod(service)
        assert pod["serviceAccountName"] == f"room-{service}"
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False


def test_each_command_is_a_console_script_of_the_service(render: Render) -> None:
    scripts = {}
    for file in ROOT.glob("services/*/pyproject.toml"):
        scripts.update(tomllib.loads(file.read_text())["project"]["scripts"])
    made = render()
    for service in SERVICES:
        [command] = made.container(service)["args"]
        assert scripts.pop(command) == f"room_{service}.__main__:main"
    assert scripts == {}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mount", ["file", "env"])
def test_what_the_services_are_given_is_what_their_settings_take(render: Render, profile: str, mount: str) -> None:
    """The real models read the variables; what is in Secrets is filled in."""
    real = {
        "databaseDsn": "postgresql://room@db/room",
        "overflowDsn": "postgresql://ingest@db/room",
        "encryptionKeys": "a:" + "1" * 64,
        "tokenKeys": "a:" + "2" * 64,
        "redisUrl": "redis://redis:6379",
        "adminBootstrapToken": "a-first-token-of-admin",
    }
    made = render({"secrets": {"mount": mount}}, "minimal", profile)
    for service, model in find_models().items():
        environment = {}
        keys = {item.replace("-", ""): value for item, value in ((_dashed(k), v) for k, v in real.items())}
        for name, value in made.environment(service).items():
            if isinstance(value, dict):
                value = keys.get(value["secretKeyRef"]["key"].replace("-", ""), "secret")
            elif value.startswith("/run/secrets/room/"):
                name, value = name.removesuffix("_FILE"), real.get(value.rpartition("/")[2], "secret")
            environment[name] = value
        parse_settings(model, environment)


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def test_settings_become_variables_and_large_numbers_stay_whole(render: Render) -> None:
    made = render(
        {
            "ingest": {"settings": {"maxInFlightBytes": 268435456, "bodySeconds": 2.5, "accessLog": True}},
            "egress": {"allowedNetworks": ["10.0.0.0/8", "192.168.0.0/16"]},
            "database": {"poolMax": 20},
        }
    )
    ingest = made.environment("ingest")
    assert ingest["ROOM_INGEST__MAX_IN_FLIGHT_BYTES"] == "268435456"
    assert ingest["ROOM_INGEST__BODY_SECONDS"] == "2.5"
    assert ingest["ROOM_INGEST__ACCESS_LOG"] == "true"
    assert made.environment("outbound")["ROOM_EGRESS__ALLOWED_NETWORKS"] == "10.0.0.0/8,192.168.0.0/16"
    assert made.environment("compactor")["ROOM_DATABASE__POOL_MAX"] == "20"
    assert "ROOM_DATABASE__POOL_MAX" not in ingest
    assert "ROOM_EGRESS__ALLOWED_NETWORKS" not in made.environment("matcher")


def test_probes_ask_progress_to_live_and_dependencies_to_be_ready(render: Render) -> None:
    for service in SERVICES:
        container = render().container(service)
        ports = {port["name"] for port in container["ports"]}
        assert "operations" in ports
        paths = {
            probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_only_ingest_waits_until_load_balancers_know(render: Render) -> None:
    for service in SERVICES:
        assert ("lifecycle" in render().container(service)) == (service == "ingest")


@pytest.mark.parametrize(
    ("service", "drain", "seconds"),
    [("ingest", None, 30), ("ingest", 20, 42), ("runner", None, 60), ("runner", 100.5, 116), ("matcher", None, 60)],
)
def test_a_pod_has_the_time_that_its_drain_asks_for(
    render: Render, service: str, drain: float | None, seconds: int
) -> None:
    values: dict[str, Any] = {} if drain is None else {service: {"settings": {"drainSeconds": drain}}}
    assert render(values).pod(service)["terminationGracePeriodSeconds"] == seconds


def test_consumers_are_replaced_one_by_one_and_servers_before_they_go(render: Render) -> None:
    made = render()
    for service in CONSUMERS:
        spec = made.deployment(service)["spec"]
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
        assert spec["minReadySeconds"] == 10
    for service in ("ingest", "admin"):
        assert made.deployment(service)["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_pods_are_spread_over_zones_and_nodes_of_each_rollout(everything: Objects) -> None:
    for service in SERVICES:
        constraints = everything.pod(service)["topologySpreadConstraints"]
        assert [item["topologyKey"] for item in constraints] == [
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        ]
        for item in constraints:
            assert item["matchLabelKeys"] == ["pod-template-hash"]
            assert item["whenUnsatisfiable"] == "ScheduleAnyway"
            assert item["labelSelector"] == everything.deployment(service)["spec"]["selector"]


def test_budgets_where_there_is_more_than_one_replica_and_never_for_the_unready(render: Render) -> None:
    assert render().kind("PodDisruptionBudget") == []
    made = render({"defaults": {"replicas": 2}, "matcher": {"pdb": {"enabled": False}}, "admin": {"replicas": 1}})
    assert made.names("PodDisruptionBudget") == {
        f"room-{name}" for name in ("ingest", "scheduler", "runner", "outbound")
    }
    for budget in made.kind("PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_selectors_pick_the_pods_of_their_own_component_only(everything: Objects) -> None:
    labels = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"]
        for found in everything.kind("Deployment")
    }
    selectors = {
        f"{found['kind']}/{found['metadata']['name']}": found["spec"]["selector"].get(
            "matchLabels", found["spec"]["selector"]
        )
        for kind in ("Deployment", "PodDisruptionBudget", "Service")
        for found in everything.kind(kind)
    }
    assert selectors
    for name, selector in selectors.items():
        chosen = {pod for pod, of in labels.items() if selector.items() <= of.items()}
        assert chosen == {name.partition("/")[2]}, name


def test_a_chart_version_alone_restarts_nothing(render: Render) -> None:
    for service in SERVICES:
        assert "helm.sh/chart" not in render().deployment(service)["spec"]["template"]["metadata"]["labels"]


def test_services_can_be_left_out(render: Render) -> None:
    made = render({"compactor": {"enabled": False}, "admin": {"enabled": False}})
    assert "room-compactor" not in made.names("Deployment")
    assert made.names("Service") == {"room-ingest"}


def test_extension_points_reach_the_pod(render: Render) -> None:
    made = render(
        {
            "matcher": {
                "podLabels": {"team": "sre"},
                "podAnnotations": {"note": "x"},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": "high",
                "runtimeClassName": "gvisor",
                "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://{{ .Release.Name }}-proxy:3128"}],
                "extraEnvFrom": [{"configMapRef": {"name": "more"}}],
                "extraVolumes": [{"name": "more", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
                "initContainers": [{"name": "before", "image": "busybox"}],
                "extraContainers": [{"name": "beside", "image": "busybox"}],
                "topologySpreadConstraints": [],
            },
            "commonLabels": {"owner": "platform"},
            "extraObjects": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
            ],
        }
    )
    pod = made.pod("matcher")
    labels = made.deployment("matcher")["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "sre"
    assert labels["owner"] == "platform"
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("high", "gvisor")
    assert made.environment("matcher")["HTTPS_PROXY"] == "http://room-proxy:3128"
    assert pod["containers"][0]["envFrom"] == [{"configMapRef": {"name": "more"}}]
    assert {"name": "more", "mountPath": "/more"} in pod["containers"][0]["volumeMounts"]
    assert [item["name"] for item in pod["initContainers"]] == ["before"]
    assert [item["name"] for item in pod["containers"]] == ["matcher", "beside"]
    assert pod["topologySpreadConstraints"] == []
    assert made.names("ConfigMap") == {"room-more"}


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "room:0.1.0"),
        ({"image": {"registry": "registry.example.com", "tag": "1.2"}}, "registry.example.com/room:1.2"),
        ({"image": {"digest": "sha256:" + "a" * 64}}, "room@sha256:" + "a" * 64),
        ({"global": {"imageRegistry": "mirror"}, "image": {"registry": "other"}}, "mirror/room:0.1.0"),
    ],
)
def test_one_image_for_everything(render: Render, values: dict[str, Any], image: str) -> None:
    assert {container["image"] for _, pod in render(values).pods() for container in pod["containers"]} == {image}


def test_pull_secrets_of_chart_and_parent(render: Render) -> None:
    made = render({"imagePullSecrets": ["own"], "global": {"imagePullSecrets": [{"name": "parent"}]}})
    for name, pod in made.pods():
        assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "parent"}], name


def test_names_follow_the_release_and_fit(render: Render) -> None:
    made = render(release="a" * 53)
    assert all(len(found["metadata"]["name"]) <= 63 for found in made.all)
    assert render(release="eu").names("Deployment") == {f"eu-room-{service}" for service in SERVICES}


def test_ingress_leads_to_the_service(render: Render) -> None:
    made = render({"ingest": {"ingress": {"enabled": True, "host": "hooks.example.com", "tlsSecret": "tls"}}})
    [ingress] = made.kind("Ingress")
    [rule] = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "room-ingest", "port": {"name": "http"}}
    assert ingress["spec"]["tls"] == [{"hosts": ["hooks.example.com"], "secretName": "tls"}]
    [port] = made.get("Service", "room-ingest")["spec"]["ports"]
    assert port["targetPort"] in {item["name"] for item in made.container("ingest")["ports"]}
