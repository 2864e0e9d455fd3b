"""The adapter against a provider that fails in every way it can."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable, RoomError
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.llm.port import ChatRequest, EventRejected, ToolCall
from room_common.llm.settings import LlmSettings

KEY = "sk-very-secret-key"
PROMPT = "a very private prompt"
Body = dict[str, Any]
Reply = Callable[[Body], web.StreamResponse | Body | None]


def completion_body(text: str | None = "yes", **choice: Any) -> Body:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-model",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 3,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }


OK = completion_body()


def failure(status: int, headers: dict[str, str] | None = None, **error: Any) -> Reply:
    return lambda _body: web.json_response({"error": {"message": "m", **error}}, status=status, headers=headers)


def text(status: int, content: str) -> Reply:
    return lambda _body: web.Response(status=status, text=content)


@dataclass
class Provider:
    """Answers the scripted replies in order, the last one for ever. None as a reply resets the connection."""

    replies: list[Reply | Body | None] = field(default_factory=lambda: [OK])
    requests: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    inside: int = 0
    most_inside: int = 0
    url: str = ""

    def script(self, *replies: Reply | Body | None) -> None:
        self.replies = list(replies)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.inside -= 1
        answer = reply(body) if callable(reply) else reply
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.json_response(answer) if isinstance(answer, dict) else answer


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    double = Provider()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", double.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    double.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield double
    finally:
        await runner.cleanup()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


Make = Callable[..., OpenAiLlm]


@pytest.fixture
async def make(provider: Provider, registry: CollectorRegistry) -> AsyncIterator[Make]:
    made: list[OpenAiLlm] = []

    def build(**changes: Any) -> OpenAiLlm:
        values = {
            "base_url": provider.url,
            "api_key": KEY,
            "fast_model": "small",
            "standard_model": "large",
            "retry_base_seconds": 0.001,
            **changes,
        }
        made.append(OpenAiLlm(LlmSettings.model_validate(values), registry))
        return made[-1]

    yield build
    for llm in made:
        await llm.stop()


def request(**changes: Any) -> ChatRequest:
    values: Body = {"tier": "fast", "messages": [{"role": "user", "content": PROMPT}], "max_output_tokens": 8}
    return ChatRequest(**{**values, **changes})


async def error_of(call: Awaitable[object]) -> RoomError:
    with pytest.raises(RoomError) as caught:
        await call
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert PROMPT not in shown
    return caught.value


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


async def test_an_answer_with_its_counts(provider: Provider, make: Make, registry: CollectorRegistry) -> None:
    completion = await make().complete(request())
    assert (completion.text, completion.model, completion.finish_reason) == ("yes", "served-model", "stop")
    assert (completion.input_tokens, completion.output_tokens, completion.cached_tokens) == (11, 3, 5)
    assert not completion.fallback
    assert provider.requests == [
        {
            "model": "small",
            "messages": [{"role": "user", "content": PROMPT}],
            "temperature": 0.0,
            "max_completion_tokens": 8,
        }
    ]
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="ok") == 1
    assert sample(registry, "room_llm_requests_total", tier="standard", outcome="ok") == 0
    assert sample(registry, "room_llm_tokens_total", tier="fast", direction="input") == 11
    assert sample(registry, "room_llm_tokens_total", tier="fast", direction="cached") == 5
    assert sample(registry, "room_llm_request_duration_seconds_count", tier="fast") == 1


async def test_tool_calls_there_and_back(provider: Provider, make: Make) -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "mark", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    provider.script(completion_body(message=message, finish_reason="tool_calls"))
    tool = {"type": "function", "function": {"name": "mark", "parameters": {"type": "object"}}}
    completion = await make().complete(request(tier="standard", tools=[tool], temperature=None, max_output_tokens=None))
    assert completion.tool_calls == (ToolCall("call_7", "mark", '{"a":1}'),)
    assert completion.message() == message
    assert provider.requests[0].keys() == {"model", "messages", "tools"}
    assert provider.requests[0]["model"] == "large"


PROVIDER_FAULTS = [
    pytest.param(None, "connect", 3, id="reset"),
    pytest.param(failure(500), "server_error", 3, id="500"),
    pytest.param(text(502, "<html>bad gateway</html>"), "server_error", 3, id="502-html"),
    pytest.param(failure(503, {"retry-after": "0"}), "server_error", 3, id="503-retry-after-0"),
    pytest.param(failure(503, {"retry-after": "77"}), "server_error", 1, id="503-retry-after-long"),
    pytest.param(failure(429), "rate_limit", 3, id="429"),
    pytest.param(failure(429, code="insufficient_quota"), "quota", 1, id="quota"),
    pytest.param(failure(402), "quota", 1, id="402"),
    pytest.param(failure(401, message=f"Incorrect API key provided: {KEY}"), "unauthorized", 1, id="401"),
    pytest.param(failure(403), "forbidden", 1, id="403"),
    pytest.param(failure(404, code="model_not_found"), "model_missing", 1, id="model-missing-404"),
    pytest.param(failure(400, message="The model `small` does not exist"), "model_missing", 1, id="model-missing-400"),
    pytest.param(text(404, "nothing here"), "not_found", 1, id="wrong-base-url"),
    pytest.param(
        lambda _b: web.Response(status=307, headers={"location": "/x"}), "unexpected_status", 1, id="redirect"
    ),
    pytest.param(failure(408), "timeout", 3, id="408"),
    pytest.param(text(200, "<html>sign in</html>"), "malformed", 3, id="captive-portal"),
    pytest.param(text(200, '{"choices": ['), "malformed", 3, id="half-json"),
    pytest.param(text(200, ""), "malformed", 3, id="empty"),
    pytest.param(text(200, "[1]"), "malformed", 3, id="array"),
    pytest.param({"choices": [{"index": 0}]}, "malformed", 3, id="no-message"),
    pytest.param({"error": {"code": 429, "message": "upstream"}}, "rate_limit", 3, id="200-with-429"),
    pytest.param({"error": {"message": "upstream"}}, "server_error", 3, id="200-with-error"),
    pytest.param({"error": "upstream"}, "server_error", 3, id="200-with-error-text"),
]


@pytest.mark.parametrize(("reply", "kind", "tries"), PROVIDER_FAULTS)
async def test_the_providers_fault_is_waited_out(
    provider: Provider, make: Make, registry: CollectorRegistry, reply: Reply | None, kind: str, tries: int
) -> None:
    provider.script(reply)
    error = await error_of(make().complete(request()))
    assert isinstance(error, DependencyUnavailable)
    assert (error.dependency, error.kind) == ("llm", kind)
    assert len(provider.requests) == tries
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="provider") == 1
    assert sample(registry, "room_llm_retries_total", tier="fast", reason=kind) == tries - 1


EVENT_FAULTS = [
    pytest.param(failure(400, code="context_length_exceeded"), "context_length", id="context-openai"),
    pytest.param(
        failure(400, message="This model's maximum context length is 4096 tokens, max_tokens is too large"),
        "context_length",
        id="context-vllm",
    ),
    pytest.param(text(413, "too large"), "context_length", id="413"),
    pytest.param(failure(400, code="content_filter"), "content_filter", id="filter-azure"),
    pytest.param(failure(400, message="bad image"), "invalid_request", id="400"),
    pytest.param(failure(422, message="tools: bad schema"), "invalid_request", id="422"),
    pytest.param(completion_body("", finish_reason="content_filter"), "content_filter", id="filtered-answer"),
    pytest.param(completion_body("", finish_reason="length"), "truncated", id="nothing-but-thoughts"),
    pytest.param(completion_body(message={"content": None, "refusal": "I can't"}), "refused", id="refusal"),
]


async def test_the_provider_counts_as_up_from_its_next_answer(
    provider: Provider, make: Make, registry: CollectorRegistry
) -> None:
    llm = make()
    for reply, up in ((text(401, "who?"), 0), (completion_body(), 1), (text(401, "who?"), 0), (text(413, "long"), 1)):
        provider.script(reply)
        try:
            await llm.complete(request())
        except (DependencyUnavailable, EventRejected):
            pass
        assert sample(registry, "room_dependency_up", dependency="llm") == up


@pytest.mark.parametrize(("reply", "kind"), EVENT_FAULTS)
async def test_the_events_own_fault_is_not_tried_again(
    provider: Provider, make: Make, registry: CollectorRegistry, reply: Reply, kind: str
) -> None:
    provider.script(reply)
    error = await error_of(make().complete(request()))
    assert isinstance(error, EventRejected)
    assert error.kind == kind
    assert len(provider.requests) == 1
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="rejected") == 1


async def test_no_choices_is_tried_again_before_it_is_the_events_fault(provider: Provider, make: Make) -> None:
    provider.script({"choices": []})
    error = await error_of(make().complete(request()))
    assert isinstance(error, EventRejected)
    assert error.kind == "no_choices"
    assert len(provider.requests) == 3


async def test_a_passing_fault_is_survived(provider: Provider, make: Make) -> None:
    provider.script(failure(503), None, OK)
    assert (await make().complete(request())).text == "yes"
    assert len(provider.requests) == 3


async def test_the_providers_wish_is_reported(provider: Provider, make: Make) -> None:
    provider.script(failure(429, {"Retry-After": "77"}))
    error = await error_of(make().complete(request()))
    assert isinstance(error, DependencyUnavailable)
    assert error.retry_after == 77


async def test_nobody_listens(make: Make) -> None:
    error = await error_of(make(base_url="http://127.0.0.1:1/v1").complete(request()))
    assert isinstance(error, DependencyUnavailable)
    assert error.kind == "connect"


async def test_not_http(make: Make) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        error = await error_of(make(base_url=f"http://127.0.0.1:{port}/v1").complete(request()))
    finally:
        server.close()
        await server.wait_closed()
    assert isinstance(error, DependencyUnavailable)
    assert error.kind == "connect"


async def test_an_answer_that_breaks_off(make: Make) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        error = await error_of(make(base_url=f"http://127.0.0.1:{port}/v1").complete(request()))
    finally:
        server.close()
        await server.wait_closed()
    assert isinstance(error, DependencyUnavailable)
    assert error.kind == "connect"


async def test_a_hang_is_cut_off(provider: Provider, make: Make, registry: CollectorRegistry) -> None:
    provider.gate = asyncio.Event()
    error = await error_of(make(max_retries=1).complete(request(timeout=0.05)))
    assert isinstance(error, DependencyUnavailable)
    assert error.kind == "timeout"
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="provider") == 1


async def test_all_tries_together_are_bounded(provider: Provider, make: Make) -> None:
    provider.script(failure(500))
    llm = make(max_retries=10, retry_base_seconds=30, retry_max_seconds=120, total_factor=1)
    error = await error_of(llm.complete(request(timeout=0.2)))
    assert isinstance(error, DependencyUnavailable)
    assert error.kind == "server_error"  # what failed, not that time was up


async def test_temperature_is_left_out_where_the_model_does_not_take_it(provider: Provider, make: Make) -> None:
    def strict(body: Body) -> Body | web.StreamResponse | None:
        if "temperature" in body:
            return failure(400, param="temperature", code="unsupported_value")(body)
        return OK

    provider.script(strict)
    llm = make()
    await llm.complete(request())
    await llm.complete(request())
    assert ["temperature" in body for body in provider.requests] == [True, False, False]


async def test_an_older_server_gets_max_tokens(provider: Provider, make: Make) -> None:
    def old(body: Body) -> Body | web.StreamResponse | None:
        if "max_completion_tokens" in body:
            return failure(400, message="Unrecognized request argument supplied: max_completion_tokens")(body)
        return OK

    provider.script(old)
    llm = make()
    await llm.complete(request())
    await llm.complete(request())
    assert [body.get("max_tokens") for body in provider.requests] == [None, 8, 8]


async def test_a_parameter_refused_for_ever_ends(provider: Provider, make: Make) -> None:
    provider.script(failure(400, param="temperature"))
    error = await error_of(make().complete(request()))
    assert isinstance(error, EventRejected)
    assert len(provider.requests) == 2


async def test_what_a_failed_call_taught_is_forgotten(provider: Provider, make: Make) -> None:
    provider.script(failure(400, param="temperature"), failure(400), OK)
    llm = make()
    await error_of(llm.complete(request()))
    await llm.complete(request())
    assert "temperature" in provider.requests[-1]


@pytest.mark.parametrize(
    "refusal", [failure(404), failure(403), failure(400, param="model"), failure(400, code="model_not_found")]
)
async def test_a_refused_override_falls_back(
    provider: Provider, make: Make, registry: CollectorRegistry, refusal: Reply
) -> None:
    provider.script(lambda body: refusal(body) if body["model"] == "own" else OK)
    llm = make()
    assert (await llm.complete(request(model="own"))).fallback
    assert (await llm.complete(request(model="own"))).fallback
    assert [body["model"] for body in provider.requests] == ["own", "small", "small"]
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="fallback") == 2


async def test_an_override_that_works_is_used(provider: Provider, make: Make) -> None:
    assert not (await make().complete(request(model="own"))).fallback
    assert provider.requests[0]["model"] == "own"


async def test_a_provider_in_trouble_is_no_refused_override(provider: Provider, make: Make) -> None:
    provider.script(failure(401))
    error = await error_of(make().complete(request(model="own")))
    assert isinstance(error, DependencyUnavailable)


async def test_calls_in_flight_are_bounded(provider: Provider, make: Make) -> None:
    provider.gate = asyncio.Event()
    llm = make(concurrency=2)
    calls = [asyncio.create_task(llm.complete(request())) for _ in range(5)]
    while provider.inside < 2:
        await asyncio.sleep(0.01)
    provider.gate.set()
    await asyncio.gather(*calls)
    assert provider.most_inside == 2


async def test_a_cancelled_call_gives_its_place_back(
    provider: Provider, make: Make, registry: CollectorRegistry
) -> None:
    provider.gate = asyncio.Event()
    llm = make(concurrency=1)
    call = asyncio.create_task(llm.complete(request()))
    while provider.inside < 1:
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    provider.gate.set()
    assert (await llm.complete(request())).text == "yes"
    assert sample(registry, "room_llm_requests_total", tier="fast", outcome="cancelled") == 1


async def test_environment_variables_of_the_client_do_nothing(
    provider: Provider, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin")
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project")
    await make(api_key=None).complete(request())
    assert provider.headers[0]["authorization"] == "Bearer none"
    assert not provider.headers[0].keys() & {"openai-organization", "openai-project"}


async def test_prompts_and_keys_are_never_logged(
    provider: Provider, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    provider.script(failure(500, message=PROMPT), failure(429, message=KEY), OK)
    with caplog.at_level(logging.DEBUG):
        await make().complete(request())
    assert PROMPT not in caplog.text
    assert KEY not in caplog.text
    assert PROMPT not in repr(request())
