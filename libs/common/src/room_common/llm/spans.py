"""Spans of model calls, named as OpenTelemetry's conventions for generative AI say. Never a prompt, never an answer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from room_common.llm.port import ChatRequest, Completion
from room_common.telemetry.tracing import span, tracer

PROVIDER: Final = "openai"
"""Whose API is spoken; ``server.address`` says who answers."""


def chat_span(request: ChatRequest, model: str, at: str) -> AbstractContextManager[Span]:
    """One model call with all its tries. ``at`` is host and port of the provider."""
    if tracer() is None:
        return span("")
    host, _, port = at.rpartition(":")
    if not port.isdecimal():
        host, port = at, ""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": model,
        "server.address": host,
        "room.llm.tier": request.tier,
    }
    if port:
        attributes["server.port"] = int(port)
    if request.max_output_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        attributes["gen_ai.request.temperature"] = request.temperature
    return span(f"chat {model}", SpanKind.CLIENT, attributes=attributes)


def tell(call: Span, completion: Completion) -> None:
    """What the provider says of its answer."""
    if not call.is_recording():
        return
    call.set_attributes(
        {
            "gen_ai.response.finish_reasons": [completion.finish_reason],
            "gen_ai.usage.input_tokens": completion.input_tokens,
            "gen_ai.usage.output_tokens": completion.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": completion.cached_tokens,
        }
    )
    if completion.model:
        call.set_attribute("gen_ai.response.model", completion.model)
