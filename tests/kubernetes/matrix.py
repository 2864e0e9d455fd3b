"""``make chart``: every profile, rendered by Helm for three versions of Kubernetes, with and without the kinds of
operators, each object checked against the schema of that version, custom resources against their projects' definitions.

Unlike the tests this uses the command, whose ``--kube-version`` and ``--api-versions`` say what a cluster knows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "room"
HOME = Path(os.environ["ROOM_KUBERNETES_HOME"])
VERSIONS = ("1.29", "1.33", "1.37")
OPERATORS = ("monitoring.coreos.com/v1", "keda.sh/v1alpha1")
EVERYTHING = CHART / "profiles" / "production.yaml"


def render(profiles: list[Path], version: str, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """The objects, hooks and tests among them."""
    line = [str(HOME / "bin" / "helm"), "template", "room", str(CHART), "--namespace", "room"]
    line += ["--kube-version", f"{version}.0", *(f"--api-versions={kind}" for kind in kinds)]
    line += [f"--values={profile}" for profile in profiles]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}\n{done.stderr}")
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def definitions() -> dict[tuple[str, str], Any]:
    """Schemas of custom resources by apiVersion and kind, strict about names."""
    found: dict[tuple[str, str], Any] = {}
    for path in (HOME / "crds").glob("*.yaml"):
        for definition in yaml.safe_load_all(path.read_text()):
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = _strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def _strict(node: Any) -> Any:
    """The API server drops unknown fields silently; here they are mistakes."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items()}
    open_ended = {"additionalProperties", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object" and not open_ended & node.keys():
        made["additionalProperties"] = False
    if "(?i)" in str(node.get("pattern")):
        made.pop("pattern")  # Go takes flags anywhere, Python at the beginning only
    if node.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def _check(found: dict[str, Any], version: str, custom: dict[tuple[str, str], Any]) -> None:
    """Raises where the object is not valid."""
    schema = custom.get((found["apiVersion"], found["kind"]))
    if schema is not None:
        jsonschema.validate(found, schema)
    else:
        kubernetes_validate.validate(found, version, strict=True)


def main() -> int:
    custom = definitions()
    profiles = {path.stem: [CHART / "profiles" / "minimal.yaml", path] for path in CHART.glob("profiles/*.yaml")}
    profiles["production as gitops"] = [EVERYTHING, CHART / "profiles" / "gitops.yaml"]
    profiles["production on openshift"] = [EVERYTHING, CHART / "profiles" / "openshift.yaml"]
    wrong = 0
    for name, files in sorted(profiles.items()):
        for version in VERSIONS:
            for kinds in ((), OPERATORS):
                objects = render(files, version, kinds)
                count = Counter("custom" if (one["apiVersion"], one["kind"]) in custom else "own" for one in objects)
                for one in objects:
                    try:
                        _check(one, version, custom)
                    except Exception as error:
                        wrong += 1
                        text = " ".join(str(getattr(error, "message", error)).split())[:300]
                        sys.stderr.write(f"{name}, {version}: {one['kind']}/{one['metadata']['name']}: {text}\n")
                knows = "with operators" if kinds else "plain"
                print(f"{name:24} {version}  {knows:14}  {count['own']:3} objects, {count['custom']} custom resources")
    print(f"{wrong} of them are not valid" if wrong else "all are valid")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
