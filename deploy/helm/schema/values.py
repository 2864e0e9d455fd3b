"""The shape of the chart's values. ``python -m schema`` writes ``values.schema.json`` from it (see ``__main__``).

Sections of settings (``kafka``, ``database``, a component's ``settings``, ...) are taken from the services' own models,
with their types, bounds and descriptions; what is Kubernetes' is described as far as a typing mistake can be told.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from schema.catalogue import SECRETS, settable

COMPONENTS = ("ingest", "matcher", "scheduler", "runner", "outbound", "compactor", "admin")

Object = dict[str, Any]
Strings = dict[str, str]


class Group(BaseModel):
    """Base: camelCase, and strict about names."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Global(BaseModel):
    """What parent charts set for all their charts."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)
    image_registry: str | None = None
    image_pull_secrets: list[str | Object] | None = None


class Image(Group):
    registry: str | None = None
    repository: Annotated[str, Field(min_length=1)] | None = None
    tag: str | None = None
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] | None = None
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None


class Secret(Group):
    existing_secret: str | None = None
    key: Annotated[str, Field(min_length=1)] | None = None
    value: str | None = None


class Authority(Group):
    """A PEM bundle of certificate authorities."""

    config_map: str | None = None
    secret: str | None = None
    key: str | None = None


class Autoscaling(Group):
    type: Literal["none", "hpa", "keda"] | None = None
    min_replicas: Annotated[int, Field(ge=1)] | None = None
    max_replicas: Annotated[int, Field(ge=1)] | None = None
    target_cpu_utilization_percentage: Annotated[int, Field(ge=1)] | None = Field(
        None, alias="targetCPUUtilizationPercentage"
    )
    metrics: list[Object] | None = None
    behavior: Object | None = None
    lag_threshold: Annotated[int, Field(ge=1)] | None = None
    activation_lag_threshold: Annotated[int, Field(ge=0)] | None = None
    busy_percentage: Annotated[int, Field(ge=1, le=100)] | None = None
    polling_interval: Annotated[int, Field(ge=1)] | None = None
    fallback_replicas: Annotated[int, Field(ge=1)] | None = None


class DisruptionBudget(Group):
    enabled: bool | None = None
    max_unavailable: int | str | None = None


class ServiceAccount(Group):
    create: bool | None = None
    name: str | None = None
    annotations: Strings | None = None


class Placement(Group):
    """Of any pod."""

    resources: Object | None = None
    pod_labels: Strings | None = None
    pod_annotations: Strings | None = None
    node_selector: Strings | None = None
    tolerations: list[Object] | None = None
    affinity: Object | None = None
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    extra_env: list[Object] | None = None
    extra_env_from: list[Object] | None = None
    extra_volumes: list[Object] | None = None
    extra_volume_mounts: list[Object] | None = None


class Component(Placement):
    """One of the services. ``defaults`` has the same shape, without ``settings``."""

    enabled: bool | None = None
    replicas: Annotated[int, Field(ge=0)] | None = None
    annotations: Strings | None = None
    strategy: Object | None = None
    min_ready_seconds: Annotated[int, Field(ge=0)] | None = None
    revision_history_limit: Annotated[int, Field(ge=0)] | None = None
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] | None = None
    startup_probe: Object | None = None
    liveness_probe: Object | None = None
    readiness_probe: Object | None = None
    autoscaling: Autoscaling | None = None
    pdb: DisruptionBudget | None = None
    service_account: ServiceAccount | None = None
    topology_spread_constraints: list[Object] | None = None
    init_containers: list[Object] | None = None
    extra_containers: list[Object] | None = None


class Service(Group):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    annotations: Strings | None = None
    spec: Object | None = None


class Ingress(Group):
    enabled: bool | None = None
    class_name: str | None = None
    annotations: Strings | None = None
    host: str | None = None
    path: str | None = None
    tls_secret: str | None = None


class Job(Placement):
    mode: Literal["hook", "job", "none"] | None = None
    annotations: Strings | None = None
    backoff_limit: Annotated[int, Field(ge=0)] | None = None
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] | None = None


class Telemetry(Group):
    otlp_endpoint: Annotated[str, Field(pattern="^(https?://.+)?$")] | None = None
    sampler: str | None = None
    sampler_arg: str | None = None
    resource_attributes: Strings | None = None


class Peers(Group):
    """Where something is: ``to`` as in a NetworkPolicy, empty for anywhere."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    to: list[Object] | None = None


class NetworkPolicy(Group):
    enabled: bool | None = None
    allow_external_egress: bool | None = None
    ingress_from: list[Object] | None = None
    admin_from: list[Object] | None = None
    monitoring_from: list[Object] | None = None
    dns: Peers | None = None
    kafka: Peers | None = None
    database: Peers | None = None
    redis: Peers | None = None
    otlp: Peers | None = None
    https: Peers | None = None
    extra_ingress: list[Object] | None = None
    extra_egress: list[Object] | None = None


class Optional(Group):
    """A custom resource: made if asked for, and if the cluster knows its kind (``renderMode``)."""

    enabled: bool | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    namespace: str | None = None
    render_mode: Literal["skipIfMissing", "failIfMissing", "alwaysRender"] | None = None


class Monitor(Optional):
    interval: str | None = None
    scrape_timeout: str | None = None
    relabelings: list[Object] | None = None
    metric_relabelings: list[Object] | None = None


class Dashboards(Group):
    enabled: bool | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    namespace: str | None = None


class Monitoring(Group):
    pod_monitor: Monitor | None = None
    service_monitor: Monitor | None = None
    prometheus_rule: Optional | None = None
    dashboards: Dashboards | None = None


class Keda(Group):
    render_mode: Literal["skipIfMissing", "failIfMissing", "alwaysRender"] | None = None
    prometheus_address: str | None = None
    prometheus_selector: str | None = None


class HelmTest(Group):
    enabled: bool | None = None
    existing_secret: str | None = None
    source_type: str | None = None


def _section(name: str) -> dict[str, Any]:
    """The fields of a section over all services, as pydantic wants them."""
    found: dict[str, Any] = {}
    for service in COMPONENTS:
        for section, field, variable in settable(service):
            if section == name:
                info = variable.field
                kind: Any = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
                found[field] = (kind | None, Field(None, description=" ".join((info.description or "").split())))
    return found


def _group(name: str, base: type[BaseModel], **more: Any) -> type[BaseModel]:
    made: type[BaseModel] = create_model(name, __base__=base, **more)
    return made


def values_model() -> type[BaseModel]:
    """The model of the whole values file."""
    sections = {section for service in COMPONENTS for section, _, _ in settable(service)} - {"", *COMPONENTS}
    fields: dict[str, Any] = {
        name: (_group(name.capitalize(), Group, **_section(name)) | None, None) for name in sections
    }
    for name in ("kafka", "database"):
        base = _group(f"{name.capitalize()}Settings", Group, **_section(name))
        fields[name] = (_group(name.capitalize(), base, ca=(Authority | None, None)) | None, None)
    for name, (kind, _) in _section("").items():
        fields[name] = (kind, None)
    for name in COMPONENTS:
        more: dict[str, Any] = {
            "settings": (_group(f"{name.capitalize()}Settings", Group, **_section(name)) | None, None)
        }
        if name in ("ingest", "admin"):
            more |= {"service": (Service | None, None), "ingress": (Ingress | None, None)}
        fields[name] = (_group(name.capitalize(), Component, **more) | None, None)
    names = [*SECRETS.values(), "migrationDsn"]
    name_of_one: Any = Literal.__getitem__(tuple(names))
    secrets = _group(
        "Secrets",
        Group,
        existingSecret=(str | None, None),
        mount=(Literal["file", "env"] | None, None),
        optionalKeys=(list[name_of_one] | None, None),
        **{name: (Secret | None, None) for name in names},
    )
    return _group(
        "Values",
        Group,
        **fields,
        **{
            "global": (Global | None, None),
            "nameOverride": (str | None, None),
            "fullnameOverride": (str | None, None),
            "image": (Image | None, None),
            "imagePullSecrets": (list[str | Object] | None, None),
            "commonLabels": (Strings | None, None),
            "podSecurityContext": (Object | None, None),
            "containerSecurityContext": (Object | None, None),
            "secrets": (secrets | None, None),
            "telemetry": (Telemetry | None, None),
            "defaults": (Component | None, None),
            "migrations": (Job | None, None),
            "topics": (Job | None, None),
            "networkPolicy": (NetworkPolicy | None, None),
            "monitoring": (Monitoring | None, None),
            "keda": (Keda | None, None),
            "helmTest": (HelmTest | None, None),
            "extraObjects": (list[Object | str] | None, None),
        },
    )


def schema() -> dict[str, Any]:
    """JSON Schema of draft 7, which every Helm checks, without references to anything outside."""
    made = values_model().model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    made["definitions"] = made.pop("$defs")
    tidy: dict[str, Any] = _tidy(made)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **tidy, "title": "Values of the chart room"}


def _tidy(node: Any, *, names: bool = False) -> Any:
    """Without titles and defaults, which are pydantic's and not the chart's. Keys of ``properties`` are names."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _tidy(value, names=not names and key in ("properties", "definitions"))
        for key, value in node.items()
        if names or key not in ("title", "default")
    }
