"""HPA and KEDA: the metric, and who decides the number of replicas."""

from __future__ import annotations

from room_common.contracts.topics import OUTBOUND, WEBHOOKS_RAW, topic
from room_matcher.app import GROUP as MATCHER_GROUP
from room_outbound.dispatch import GROUP as OUTBOUND_GROUP
from room_runner.metrics import SLOTS

from .conftest import Objects, Render

KEDA = {"keda": {"renderMode": "alwaysRender", "prometheusAddress": "http://prometheus:9090"}}


def test_replicas_are_said_by_one_only(everything: Objects) -> None:
    scaled = {
        found["spec"]["scaleTargetRef"]["name"]
        for kind in ("HorizontalPodAutoscaler", "ScaledObject")
        for found in everything.kind(kind)
    }
    assert scaled == {f"room-{name}" for name in ("ingest", "matcher", "runner", "outbound")}
    for deployment in everything.kind("Deployment"):
        assert ("replicas" in deployment["spec"]) == (deployment["metadata"]["name"] not in scaled)


def test_kafka_lag_is_of_the_groups_and_topics_of_the_code(everything: Objects) -> None:
    for name, group, of in (("matcher", MATCHER_GROUP, WEBHOOKS_RAW), ("outbound", OUTBOUND_GROUP, OUTBOUND)):
        scaled = everything.get("ScaledObject", f"room-{name}")["spec"]
        [trigger] = scaled["triggers"]
        assert trigger["type"] == "kafka"
        assert trigger["metadata"]["consumerGroup"] == group
        assert trigger["metadata"]["topic"] == of
        assert trigger["metadata"]["bootstrapServers"] == "kafka-bootstrap.kafka:9093"
        assert scaled["maxReplicaCount"] <= topic(of).partitions
        assert scaled["minReplicaCount"] >= 1
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        assert (
            scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
            == 300
        )


def test_keda_signs_in_as_the_service_does(everything: Objects) -> None:
    trigger = everything.get("ScaledObject", "room-matcher")["spec"]["triggers"][0]
    assert (trigger["metadata"]["tls"], trigger["metadata"]["sasl"]) == ("enable", "scram_sha512")
    authentication = everything.get("TriggerAuthentication", trigger["authenticationRef"]["name"])["spec"]
    [user] = authentication["env"]
    assert everything.environment("matcher")[user["name"]] == "room"
    assert user["containerName"] == everything.container("matcher")["name"]
    references = {item["parameter"]: item for item in authentication["secretTargetRef"]}
    assert references["password"] == {"parameter": "password", "name": "room", "key": "kafka-sasl-password"}
    assert references["ca"]["name"] == "kafka-cluster-ca-cert"


def test_a_plain_broker_needs_no_authentication(render: Render) -> None:
    made = render({**KEDA, "matcher": {"autoscaling": {"type": "keda"}}})
    assert made.kind("TriggerAuthentication") == []
    assert "authenticationRef" not in made.get("ScaledObject", "room-matcher")["spec"]["triggers"][0]


def test_runners_are_scaled_by_their_busy_slots(render: Render) -> None:
    auto = {"type": "keda", "busyPercentage": 50}
    made = render({**KEDA, "runner": {"autoscaling": auto, "settings": {"slots": 20}}})
    [trigger] = made.get("ScaledObject", "room-runner")["spec"]["triggers"]
    assert trigger["metadata"]["query"] == f'sum({SLOTS.name}{{state="busy"}})'
    assert trigger["metadata"]["threshold"] == "10"


def test_nothing_of_keda_where_the_cluster_has_none(render: Render) -> None:
    made = render({"matcher": {"autoscaling": {"type": "keda"}}})
    assert made.kind("ScaledObject") == []


def test_a_budget_counts_the_fewest_replicas(render: Render) -> None:
    made = render({"ingest": {"autoscaling": {"type": "hpa", "minReplicas": 1}}})
    assert made.kind("PodDisruptionBudget") == []
    [hpa] = made.kind("HorizontalPodAutoscaler")
    assert hpa["spec"]["metrics"][0]["resource"]["name"] == "cpu"
    assert made.container("ingest")["resources"]["requests"]["cpu"]
