"""What the rehearsal model can be told to get wrong, for a number of calls or until further notice. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

HANG: Final = "hang"
RESET: Final = "reset"

KINDS: Final[Mapping[str, str]] = {
    "rate_limit": "429, with Retry-After where retry_after is given",
    "server_error": "500",
    HANG: "no answer at all until the caller gives up",
    RESET: "the connection is cut",
    "malformed": "200 with half a JSON document",
    "empty_choices": "200 without a choice",
    "refusal": "200 with a refusal instead of an answer",
    "truncated": "200 with an answer cut off by length before its first word",
    "content_filter": "400, flagged by a content filter",
    "context_length": "400, the prompt is too long",
    "unauthorized": "401",
    "model_missing": "404, no such model",
}
"""Every kind of fault, with what a caller gets."""

MOST_CALLS: Final = 1_000_000
LONGEST_RETRY_AFTER: Final = 86_400.0

_ERRORS: Final[Mapping[str, tuple[int, str, str]]] = {
    "rate_limit": (429, "rate_limit_exceeded", "Rate limit reached"),
    "server_error": (500, "server_error", "The server had an error"),
    "content_filter": (400, "content_filter", "The prompt was flagged by a content filter"),
    "context_length": (400, "context_length_exceeded", "This model's maximum context length is exceeded"),
    "unauthorized": (401, "invalid_api_key", "Incorrect API key provided"),
    "model_missing": (404, "model_not_found", "The model does not exist"),
}


class BadFault(ValueError):
    """A fault that can't be had. The message says why."""


@dataclass(slots=True)
class Fault:
    """One fault. ``times`` None: until it is taken back. ``when``: only for requests whose text contains it."""

    kind: str
    times: int | None = 1
    when: str | None = None
    retry_after: float | None = None

    def document(self) -> dict[str, object]:
        """The fault as it was asked for, with the calls that are left."""
        return {"kind": self.kind, "times": self.times, "when": self.when, "retry_after": self.retry_after}


class Faults:
    """The faults in force, in the order they came; a call meets the first that concerns it."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    @property
    def documents(self) -> list[dict[str, object]]:
        return [fault.document() for fault in self._faults]

    def replace(self, faults: list[Fault]) -> None:
        """These from now on, instead of all before."""
        self._faults = faults

    def meet(self, request: object) -> Fault | None:
        """The fault of this call, which uses it up by one; None when it goes well."""
        if not self._faults:
            return None
        text = orjson.dumps(request).decode()
        for fault in self._faults:
            if fault.when is not None and fault.when not in text:
                continue
            if fault.times is not None:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault
        return None


def read_faults(body: object) -> list[Fault]:
    """From ``{"faults": [{"kind": ..., "times": 1|null, "when": text|null, "retry_after": seconds|null}]}``.

    Raises BadFault. An empty list takes everything back.
    """
    listed = body.get("faults") if isinstance(body, Mapping) else None
    if not isinstance(listed, list) or len(listed) > 100:
        raise BadFault("faults is a list of at most 100")
    return [_fault(entry) for entry in listed]


def _fault(entry: object) -> Fault:
    if not isinstance(entry, Mapping) or not isinstance(kind := entry.get("kind"), str) or kind not in KINDS:
        raise BadFault(f"kind is one of {', '.join(KINDS)}")
    times, when, wish = entry.get("times", 1), entry.get("when"), entry.get("retry_after")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= MOST_CALLS):
        raise BadFault(f"times is from 1 to {MOST_CALLS}, or null for all")
    if when is not None and not isinstance(when, str):
        raise BadFault("when is a string or null")
    if wish is not None and (
        isinstance(wish, bool) or not isinstance(wish, int | float) or not 0 <= wish <= LONGEST_RETRY_AFTER
    ):
        raise BadFault(f"retry_after is seconds from 0 to {LONGEST_RETRY_AFTER:g}, or null")
    return Fault(kind, times, when or None, None if wish is None else float(wish))


@dataclass(frozen=True, slots=True)
class Wrong:
    """The answer of a fault that has one."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def wrong(fault: Fault, right: Mapping[str, object]) -> Wrong:
    """What a caller gets instead of the ``right`` completion; not for hanging and cutting the connection."""
    error = _ERRORS.get(fault.kind)
    if error is not None:
        status, code, message = error
        headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
        described = {"message": f"{message} (rehearsal)", "type": code, "param": None, "code": code}
        return Wrong(status, orjson.dumps({"error": described}), headers)
    if fault.kind == "malformed":
        whole = orjson.dumps(right)
        return Wrong(200, whole[: len(whole) // 2], {})
    return Wrong(200, orjson.dumps({**right, "choices": _choices(fault.kind)}), {})


def _choices(kind: str) -> list[dict[str, object]]:
    if kind == "empty_choices":
        return []
    refusal = "I can't help with that. (rehearsal)" if kind == "refusal" else None
    message = {"role": "assistant", "content": None if refusal else "", "refusal": refusal}
    return [{"index": 0, "message": message, "finish_reason": "length" if kind == "truncated" else "stop"}]
