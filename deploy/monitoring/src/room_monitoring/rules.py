"""What a rule is, and how rules become the file that Prometheus reads."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import SingleQuotedScalarString

Severity = Literal["page", "ticket"]
RUNBOOKS: Final = "docs/runbooks"

HEAD: Final = "# Written by `make documents` from deploy/monitoring; change that, not this file.\n"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        labels = {"labels": dict(self.labels)} if self.labels else {}
        return {"record": self.name, "expr": self.expr, **labels}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert. ``page`` wakes somebody, ``ticket`` is for working hours. Its runbook has its name."""

    name: str
    expr: str
    wait: str
    severity: Severity
    summary: str
    description: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}/{self.name}.md",
            },
        }


Rule = Record | Alert


def render(groups: Mapping[str, Sequence[Rule]]) -> str:
    """The file."""
    document = {
        "groups": [{"name": name, "rules": [rule.document() for rule in rules]} for name, rules in groups.items()]
    }
    return HEAD + dump(document)


def dump(document: Any) -> str:
    """YAML in one fixed layout."""
    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_quoted(document), stream)
    return stream.getvalue()


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    return SingleQuotedScalarString(value) if isinstance(value, str) and not value.isalnum() else value
