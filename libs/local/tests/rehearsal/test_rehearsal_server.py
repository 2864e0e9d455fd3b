"""The rehearsal model as a process, asked by the real client."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
import openai
import pytest
from prometheus_client import CollectorRegistry

from room_common.domain.fence import fence
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.llm.port import ChatRequest
from room_common.llm.settings import LlmSettings

SECRET = "payload-text-that-is-nobodys-business"
QUESTION = f'{fence(f"{SECRET} invoice.paid", "0123456789abcdef", "payload")}\n\nCriterion:\nIt is "invoice.paid"'
MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "room_local.rehearsal", "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"{address}/v1/models", trust_env=False)
                break
            except httpx.ConnectError:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        assert process.wait(timeout=20) in (0, -15)


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as made:
        yield made


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["rehearsal-fast", "rehearsal-standard"]


async def test_a_classification(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": QUESTION}])
    assert (answer.choices[0].message.content or "").startswith("yes (rehearsal: ")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 20
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_it_says_what_it_is(client: openai.AsyncOpenAI, http: httpx.AsyncClient) -> None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Who are you?"}])
    assert "no language model" in (answer.choices[0].message.content or "")
    page = await http.get("/")
    assert "no language model" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert SECRET not in page.text
    assert (await http.get("/style.css")).headers["content-type"].startswith("text/css")


async def test_a_cycle_through_rooms_own_adapter(url: str) -> None:
    llm = OpenAiLlm(LlmSettings(base_url=f"{url}/v1"), CollectorRegistry())
    identity = "01890000-0000-7000-8000-000000000001"
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("send_message_to_human", "mark_events_completed")
    ]
    messages: list[dict[str, object]] = [{"role": "user", "content": f"Event {identity}\n{QUESTION}"}]
    called = []
    try:
        while True:
            completion = await llm.complete(ChatRequest("standard", messages, tools))
            messages.append(completion.message())
            if not completion.tool_calls:
                break
            called += [call.name for call in completion.tool_calls]
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in completion.tool_calls]
    finally:
        await llm.stop()
    assert called == ["send_message_to_human", "mark_events_completed"]
    assert completion.text == "NO_MESSAGE"


async def test_a_delay_for_some_requests(client: openai.AsyncOpenAI, http: httpx.AsyncClient) -> None:
    try:
        answer = await http.post("/rehearsal/delay", json={"seconds": 600, "when": SECRET})
        assert answer.json() == {"seconds": 600.0, "when": SECRET}
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": QUESTION}], timeout=0.3
            )
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
    finally:
        await http.post("/rehearsal/delay", json={"seconds": 0, "when": None})
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": QUESTION}])


ANSWERED = {
    "rate_limit": (429, "rate_limit_exceeded"),
    "server_error": (500, "server_error"),
    "content_filter": (400, "content_filter"),
    "context_length": (400, "context_length_exceeded"),
    "unauthorized": (401, "invalid_api_key"),
    "model_missing": (404, "model_not_found"),
}


@pytest.fixture
async def faults(http: httpx.AsyncClient) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    async def switch(*listed: dict[str, object]) -> None:
        answer = await http.post("/rehearsal/faults", json={"faults": listed})
        assert answer.status_code == 200, answer.text

    yield switch
    await switch()


Switch = Callable[..., Awaitable[None]]


@pytest.mark.parametrize("kind", ANSWERED)
async def test_a_fault_that_is_an_error_answer(http: httpx.AsyncClient, faults: Switch, kind: str) -> None:
    await faults({"kind": kind, "times": 2, "retry_after": 1.5})
    for _ in range(2):
        answer = await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
        assert (answer.status_code, answer.json()["error"]["code"]) == ANSWERED[kind]
        assert answer.headers["retry-after"] == "1.5"
    answer = await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
    assert answer.status_code == 200


async def test_faults_that_look_like_answers(http: httpx.AsyncClient, faults: Switch) -> None:
    await faults({"kind": "malformed"}, {"kind": "empty_choices"}, {"kind": "refusal"}, {"kind": "truncated"})
    answers = [await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    with pytest.raises(ValueError, match=r"JSON|Expecting|Unterminated"):
        answers[0].json()
    assert answers[1].json()["choices"] == []
    assert answers[2].json()["choices"][0]["message"]["refusal"]
    assert answers[3].json()["choices"][0]["finish_reason"] == "length"


async def test_a_cut_connection_and_one_that_hangs(http: httpx.AsyncClient, faults: Switch) -> None:
    await faults({"kind": "reset", "when": SECRET}, {"kind": "hang", "times": None, "when": SECRET})
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES}, timeout=0.3)
    other = [{"role": "user", "content": "other"}]
    assert (await http.post("/v1/chat/completions", json={"model": "m", "messages": other})).status_code == 200
    state = (await http.get("/rehearsal/state")).json()
    assert [fault["kind"] for fault in state["faults"]] == ["hang"]
    assert "hang (all calls)" in (await http.get("/")).text


@pytest.mark.parametrize(
    "entry",
    [{}, {"kind": "none"}, {"kind": "hang", "times": 0}, {"kind": "hang", "times": True}, {"kind": "hang", "when": 1},
     {"kind": "rate_limit", "retry_after": -1}, "hang"],
)  # fmt: skip
async def test_bad_faults(http: httpx.AsyncClient, entry: object) -> None:
    assert (await http.post("/rehearsal/faults", json={"faults": [entry]})).status_code == 400
    assert (await http.post("/rehearsal/faults", json=[entry])).status_code == 400


async def test_counters(http: httpx.AsyncClient) -> None:
    before = (await http.get("/rehearsal/state")).json()
    await http.post("/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
    after = (await http.get("/rehearsal/state")).json()
    assert after["kinds"]["yes"] == before["kinds"].get("yes", 0) + 1
    assert after["tokens"] > before["tokens"]
    assert after["rehearsal"] is True


@pytest.mark.parametrize(
    "body",
    [[], {}, {"model": "m"}, {"model": "m", "messages": []}, {"model": 1, "messages": [{}]}, {"messages": ["x"]}],
)
async def test_bad_requests(http: httpx.AsyncClient, body: object) -> None:
    answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


async def test_streaming_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="does not stream"):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True)


@pytest.mark.parametrize("body", [{}, {"seconds": -1}, {"seconds": 601}, {"seconds": True}, {"seconds": 1, "when": 2}])
async def test_bad_delays(http: httpx.AsyncClient, body: object) -> None:
    assert (await http.post("/rehearsal/delay", json=body)).status_code == 400


async def test_foreign_pages_can_not_use_it(http: httpx.AsyncClient) -> None:
    assert (await http.get("/", headers={"host": "evil.example"})).status_code == 400
    plain = {"content-type": "text/plain"}
    assert (await http.post("/rehearsal/delay", content='{"seconds": 9}', headers=plain)).status_code == 415
    json = {"content-type": "application/json"}
    assert (await http.post("/v1/chat/completions", content=b"{", headers=json)).status_code == 400
    assert (await http.post("/v1/chat/completions", content=b" " * 9_000_000, headers=json)).status_code == 413
