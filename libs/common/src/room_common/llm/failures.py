"""Which class a provider's failure belongs to (behaviour 5). Pure: status, headers and body in, an error out.

Providers differ in codes and texts, so a body is only searched for a few known words, and nothing of it is kept: error
messages of providers quote keys and prompts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from room_common.errors import DependencyUnavailable, RoomError
from room_common.llm.port import EventRejected, OverrideRejected

SEARCHED_CHARACTERS = 500
"""Providers name what is wrong at once; what follows may be the prompt, and its words must not decide."""
LONGEST_RETRY_AFTER = 3_600.0

_CONTEXT_LENGTH = re.compile(
    r"context_length|context[ _]window|maximum context|max(imum)? .{0,20}context|prompt is too long|too many tokens"
    r"|reduce the length|string_above_max_length|exceed.{0,40}context",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(
    r"content_filter|content_policy|content management policy|responsibleaipolicy|flagged.{0,40}polic|moderation",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model_not_found|deploymentnotfound|invalid_model|unknown model|no such model|\bmodel\b.{0,120}?(?:not found|"
    r"does not exist|not exist|not available|not allowed|not a valid|decommissioned|deprecated)"
    r"|not a valid model|access to (?:the )?model",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|exceeded your current quota|credit balance", re.IGNORECASE)
_TOO_LARGE = re.compile(r"request[ _]too[ _]large|tokens must be reduced", re.IGNORECASE)
"""A prompt beyond the limit of a whole minute, which providers refuse with 429 however long one waits."""
_UNSUPPORTED = re.compile(
    r"unsupported|unrecognized|unrecognised|unknown|not support|unexpected|not permitted|extra_forbidden|not allowed"
    r"|extra (?:inputs|fields)|deprecated|does not accept|only the default",
    re.IGNORECASE,
)
_ADAPTABLE = ("max_completion_tokens", "max_tokens", "temperature")

PASSING = frozenset({"connect", "timeout", "server_error", "rate_limit", "malformed", "conflict"})
"""Kinds of ``DependencyUnavailable`` that another try within seconds may not meet again."""


class ParameterRefused(RoomError):
    """The model does not take a parameter that Room can do without. Never leaves the adapter."""

    def __init__(self, parameter: str) -> None:
        super().__init__(parameter)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Answer:
    """A provider's answer that is no completion: the parts that classification looks at."""

    status: int
    headers: Mapping[str, str]
    text: str
    parameter: str = ""


def describe(status: int, headers: Mapping[str, str], body: object) -> Answer:
    """``body`` is the decoded JSON, or text. Total."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return Answer(status, headers, str(error)[:SEARCHED_CHARACTERS])
    parameter = str(error.get("param") or "")[:100]
    named = " ".join(str(error.get(key) or "")[:100] for key in ("code", "type"))
    message = error.get("message") or error.get("detail") or ""
    return Answer(status, headers, f"{named} {str(message)[:SEARCHED_CHARACTERS]}", parameter)


def classify(answer: Answer, *, override: bool, now: datetime) -> RoomError:
    """The error for an answer with an error status. ``override``: the model asked for is an instance's own."""
    status = answer.status
    if status == 429:
        if not override and _TOO_LARGE.search(answer.text):
            return EventRejected("context_length", status)
        kind = "quota" if _QUOTA.search(answer.text) else "rate_limit"
        return DependencyUnavailable("llm", kind, retry_after=retry_after(answer.headers, now))
    if status >= 500 or status in (408, 409, 425):
        kind = "server_error" if status >= 500 else ("timeout" if status == 408 else "conflict")
        return DependencyUnavailable("llm", kind, retry_after=retry_after(answer.headers, now))
    if status == 413:
        return EventRejected("context_length", status)
    if status in (400, 422):
        return _bad_request(answer, override=override)
    if override and status in (403, 404):
        return OverrideRejected(status)
    return DependencyUnavailable("llm", _other_kind(answer))


def _bad_request(answer: Answer, *, override: bool) -> RoomError:
    if _CONTEXT_LENGTH.search(answer.text):
        return EventRejected("context_length", answer.status)
    if _CONTENT_FILTER.search(answer.text):
        return EventRejected("content_filter", answer.status)
    parameter = _refused_parameter(answer)
    if parameter is not None:
        return ParameterRefused(parameter)
    if answer.parameter == "model" or _MODEL.search(answer.text):
        return OverrideRejected(answer.status) if override else DependencyUnavailable("llm", "model_missing")
    return EventRejected("invalid_request", answer.status)


def _refused_parameter(answer: Answer) -> str | None:
    if answer.parameter in _ADAPTABLE:
        return answer.parameter
    if not _UNSUPPORTED.search(answer.text):
        return None
    # "use max_completion_tokens instead of max_tokens": the one that is refused is named first.
    found = [(answer.text.find(name), name) for name in _ADAPTABLE if name in answer.text]
    return min(found)[1] if found else None


def _other_kind(answer: Answer) -> str:
    if answer.status == 401:
        return "unauthorized"
    if answer.status == 402:
        return "quota"
    if answer.status == 403:
        return "forbidden"
    if answer.status == 404:
        return "model_missing" if _MODEL.search(answer.text) else "not_found"
    return "unexpected_status"


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the provider asks to wait (``retry-after-ms``, ``Retry-After`` in seconds or as a date); at most an hour.

    Header names are expected in lower case. Anything unreadable is None.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, LONGEST_RETRY_AFTER)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value:
        try:
            at = parsedate_to_datetime(value)
            seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    if seconds is None:
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def _number(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
