"""Restricted Pod Security, secrets and network rules."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import PROFILES, Objects, Render

_VOLUMES = {"configMap", "secret", "emptyDir", "projected"}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_pod_is_restricted(render: Render, profile: str) -> None:
    made = render(None, "minimal", profile)
    assert list(made.pods())
    for name, pod in made.pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], name
        for volume in pod["volumes"]:
            assert volume.keys() - {"name"} <= _VOLUMES, name


def test_users_have_high_numbers_and_none_on_openshift(render: Render) -> None:
    for _, pod in render().pods():
        assert min(pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")) >= 10_000
    for name, pod in render(None, "minimal", "openshift").pods():
        assert pod["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}, name


def test_each_service_gets_its_own_secrets_and_no_others(everything: Objects) -> None:
    def mounted(key: str) -> set[str]:
        [volume] = [volume for volume in everything.pod(key)["volumes"] if volume["name"] == "secrets"]
        return {item["path"] for source in volume["projected"]["sources"] for item in source["secret"]["items"]}

    assert mounted("ingest") == {"kafkaSaslPassword", "tokenKeys", "overflowDsn"}
    assert mounted("compactor") == {"databaseDsn", "kafkaSaslPassword"}
    assert mounted("outbound") == {"kafkaSaslPassword", "databaseDsn", "encryptionKeys"}
    assert mounted("matcher") == {"kafkaSaslPassword", "databaseDsn", "redisUrl", "llmApiKey", "encryptionKeys"}


def test_secrets_as_variables_or_files_but_never_as_text(render: Render) -> None:
    files = render().environment("compactor")
    assert files["ROOM_DATABASE__DSN_FILE"] == "/run/secrets/room/databaseDsn"
    assert "ROOM_DATABASE__DSN" not in files
    variables = render({"secrets": {"mount": "env"}})
    assert variables.environment("compactor")["ROOM_DATABASE__DSN"] == {
        "secretKeyRef": {"name": "room", "key": "database-dsn"}
    }
    assert all(volume["name"] != "secrets" for volume in variables.pod("compactor")["volumes"])


def test_a_secret_of_its_own_wins_over_the_common_one(render: Render) -> None:
    made = render({"secrets": {"databaseDsn": {"existingSecret": "pg-app", "key": "uri"}}})
    [volume] = [volume for volume in made.pod("compactor")["volumes"] if volume["name"] == "secrets"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "pg-app", "items": [{"key": "uri", "path": "databaseDsn"}]}}
    ]


def test_written_values_are_warned_of_and_restart_pods_when_they_change(render: Render) -> None:
    assert "WARNING" not in render().notes
    assert render().kind("Secret") == []
    one = render({"secrets": {"llmApiKey": {"value": "first"}}})
    two = render({"secrets": {"llmApiKey": {"value": "second"}}})
    assert "WARNING" in one.notes
    assert "first" not in one.notes
    assert one.get("Secret", "room-values")["stringData"] == {"llm-api-key": "first"}

    def checksum(made: Objects) -> str:
        found: str = made.deployment("matcher")["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"]
        return found

    assert checksum(one) != checksum(two)


def test_hooks_use_a_written_secret_that_is_there_before_them_and_gone_after_them(render: Render) -> None:
    made = render({"secrets": {"databaseDsn": {"value": "postgresql://room@db/room"}}})
    early = made.get("Secret", "room-hooks")["metadata"]["annotations"]
    job = made.get("Job", "room-migrations")
    assert int(early["helm.sh/hook-weight"]) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
    assert early["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"]
    assert "hook-succeeded" in early["helm.sh/hook-delete-policy"]
    [volume] = [item for item in job["spec"]["template"]["spec"]["volumes"] if item["name"] == "secrets"]
    assert volume["projected"]["sources"][0]["secret"]["name"] == "room-hooks"
    plain = render(
        {"migrations": {"mode": "none"}, "topics": {"mode": "none"}, "secrets": {"llmApiKey": {"value": "x"}}}
    )
    assert plain.names("Secret") == {"room-values"}


def test_authorities_are_mounted_where_the_clients_look(everything: Objects) -> None:
    environment = everything.environment("matcher")
    assert environment["ROOM_KAFKA__CA_FILE"] == "/etc/room/ca-kafka/ca.crt"
    assert environment["PGSSLROOTCERT"] == "/etc/room/ca-database/ca.crt"
    mounts = {mount["name"]: mount["mountPath"] for mount in everything.container("matcher")["volumeMounts"]}
    assert mounts["ca-kafka"] == "/etc/room/ca-kafka"


def _ports(rules: list[dict[str, Any]]) -> set[object]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_network_rules_close_every_pod_both_ways_and_name_what_it_needs(everything: Objects) -> None:
    policies = {found["metadata"]["name"]: found["spec"] for found in everything.kind("NetworkPolicy")}
    pods = everything.names("Deployment") | {"room-migrations", "room-topics"}
    assert policies.keys() == pods
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    assert _ports(policies["room-ingest"]["egress"]) == {53, 9093, 5432, 4318}
    assert _ports(policies["room-matcher"]["egress"]) == {53, 9093, 5432, 6379, 4318, 443}
    assert _ports(policies["room-compactor"]["egress"]) == {53, 5432, 9093, 4318}
    assert _ports(policies["room-migrations"]["egress"]) == {53, 5432}
    assert _ports(policies["room-topics"]["egress"]) == {53, 9093}
    assert policies["room-migrations"]["ingress"] == []
    assert _ports(policies["room-ingest"]["ingress"]) == {"http", "operations"}
    assert _ports(policies["room-matcher"]["ingress"]) == {"operations"}
    for name, spec in policies.items():
        for rule in spec["ingress"]:
            assert rule["from"], name


def test_network_rules_can_be_opened(render: Render) -> None:
    extra = [{"ports": [{"port": 8080}]}]
    values = {"networkPolicy": {"enabled": True, "allowExternalEgress": True, "extraIngress": extra}}
    for policy in render(values).kind("NetworkPolicy"):
        assert policy["spec"]["egress"] == [{}]
    made = render({"networkPolicy": {"enabled": True, "extraEgress": extra}})
    assert extra[0] in made.get("NetworkPolicy", "room-compactor")["spec"]["egress"]
