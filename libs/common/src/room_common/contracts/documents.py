"""The documents under contracts/, made from the registry and the message models.

``python -m room_common.contracts.documents contracts`` writes them; ``--check`` says which ones are out of step. Golden
examples under contracts/examples are written by hand and never generated: they are what older producers really sent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from room_common.contracts import envelope
from room_common.contracts.messages import MODELS
from room_common.contracts.topics import TOPICS, Topic

_RAW_HEADERS: Final = {
    envelope.ID: "UUIDv7 of the delivery.",
    envelope.TOKEN_SHA256: "SHA-256 of the URL's token, hex.",
    envelope.RECEIVED_AT: "Microseconds since the epoch at which the request was received.",
    envelope.HTTP: "JSON object of the kept request headers; secrets as sha256:<hex>, Authorization with its scheme.",
    envelope.OUTCOME: "ok, or too_large with an empty body.",
    envelope.CONTENT_TYPE: "Content-Type of the request, when it had one.",
    envelope.QUERY: "Query string of the request, when it had one.",
    envelope.TRACEPARENT: "W3C trace context.",
    envelope.REPLAY_OF: "Id of the delivery that this one repeats; set by admin only, as are the next two.",
    envelope.FORCED: "1 in a replay that is let in, as not verified, though its signature is wrong.",
    envelope.ITEM: "Number of the one item that a replay or a dead letter is about.",
    envelope.CHANNEL: "Channel type of a reply.",
}
_ALWAYS: Final = [envelope.ID, envelope.TOKEN_SHA256, envelope.RECEIVED_AT, envelope.HTTP, envelope.OUTCOME]


def message_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a message as consumers read it: unknown fields are ignored."""
    schema = MODELS[name].model_json_schema(mode="serialization")
    schema.pop("additionalProperties", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI document of every topic."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Room",
            "version": "1",
            "description": "Every Kafka topic of Room. Topics are never created by a client on the fly.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": {name: operation for topic in TOPICS for name, operation in _operations(topic)},
        "components": {
            "messages": {
                "raw": {
                    "summary": "A request body byte for byte; all else is in record headers.",
                    "contentType": "application/octet-stream",
                    "headers": {
                        "type": "object",
                        "properties": {
                            name: {"type": "string", "description": text} for name, text in _RAW_HEADERS.items()
                        },
                        "required": _ALWAYS,
                    },
                },
                **{
                    name: {"contentType": "application/json", "payload": {"$ref": f"schemas/{name}.schema.json"}}
                    for name in MODELS
                },
            }
        },
    }


def documents() -> dict[str, str]:
    """Every generated document by its path under contracts/."""
    made = {f"schemas/{name}.schema.json": _text(message_schema(name)) for name in MODELS}
    return made | {"asyncapi.json": _text(asyncapi())}


def not_additive(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """Why a schema's change would break a consumer or producer of the older version; empty where it would not.

    Removing a property, changing what one may be, narrowing an enumeration and requiring a property that was not there
    or was optional are breaking. New optional properties, descriptions and titles are not.
    """
    problems = []
    had, has = before.get("properties", {}), after.get("properties", {})
    for name, schema in had.items():
        here = f"{path}/{name}"
        if name not in has:
            problems.append(f"{here}: removed")
        else:
            problems += _retyped(schema, has[name], here) + not_additive(schema, has[name], here)
    required_before = set(before.get("required", ()))
    for name in sorted(set(after.get("required", ())) - required_before):
        problems.append(f"{path}/{name}: is required now")
    for name in sorted(required_before - set(after.get("required", ()))):
        problems.append(f"{path}/{name}: is not always there any more")
    return problems


def _retyped(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[str]:
    problems = [
        f"{path}: {key} changed from {before.get(key)!r} to {after.get(key)!r}"
        for key in ("type", "format", "const", "anyOf", "$ref", "items", "pattern")
        if before.get(key) != after.get(key)
    ]
    gone = set(before.get("enum", ())) - set(after.get("enum", before.get("enum", ())))
    if gone:
        problems.append(f"{path}: {', '.join(sorted(gone))} can't occur any more")
    return problems


def _channel(topic: Topic) -> dict[str, Any]:
    return {
        "address": topic.name,
        "description": topic.description,
        "messages": {topic.message: {"$ref": f"#/components/messages/{topic.message}"}},
        "bindings": {
            "kafka": {
                "partitions": topic.partitions,
                "topicConfiguration": {
                    "cleanup.policy": [topic.cleanup],
                    "retention.ms": topic.retention_ms,
                    **({"retention.bytes": topic.retention_bytes} if topic.retention_bytes is not None else {}),
                },
            }
        },
        "x-key": topic.key,
        "x-dead-letter": topic.dead_letter,
    }


def _operations(topic: Topic) -> Iterator[tuple[str, dict[str, Any]]]:
    channel = {"$ref": f"#/channels/{topic.name}"}
    for service in topic.producers:
        yield f"{service}.sends.{topic.name}", {"action": "send", "channel": channel}
    for service in topic.consumers:
        yield f"{service}.receives.{topic.name}", {"action": "receive", "channel": channel}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def main() -> None:
    """Write the documents, or check them."""
    parser = argparse.ArgumentParser(description="Write the documents under contracts/.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="only say which ones are out of step")
    arguments = parser.parse_args()
    stale = []
    for name, text in documents().items():
        file: Path = arguments.folder / name
        if file.exists() and file.read_text() == text:
            continue
        stale.append(name)
        if not arguments.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    for name in stale:
        sys.stdout.write(f"{'out of step' if arguments.check else 'written'}: {name}\n")
    raise SystemExit(1 if arguments.check and stale else 0)


if __name__ == "__main__":
    main()
