"""The rules of the egress client, on a transport in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
from pydantic import TypeAdapter

from room_common.egress.client import EgressRefused, EgressTransport
from room_common.egress.settings import EgressSettings


class Recorder(httpx.AsyncBaseTransport):
    """Keeps requests, answers what it is told."""

    def __init__(self, answer: httpx.Response | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.answer = answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer or httpx.Response(200, json={"ok": True})


class Resolver:
    """Answers from a table, and counts."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(f"{host}:{port}")
        if host not in self.names:
            raise OSError
        return self.names[host]


def client(recorder: Recorder, resolver: Resolver, **settings: object) -> httpx.AsyncClient:
    made: EgressSettings = TypeAdapter(EgressSettings).validate_python(settings)
    return httpx.AsyncClient(transport=EgressTransport(made, resolve=resolver, inner=recorder), follow_redirects=True)


async def refused(recorder: Recorder, url: str, **settings: object) -> str:
    resolver = Resolver(public=["1.1.1.1"], private=["10.0.0.5"], both=["1.1.1.1", "10.0.0.5"])
    async with client(recorder, resolver, **settings) as http:
        with pytest.raises(EgressRefused) as error:
            await http.post(url, content=b"x")
    return error.value.reason


async def test_it_connects_to_the_address_it_checked_under_the_name_it_was_given() -> None:
    recorder, resolver = Recorder(), Resolver(public=["1.1.1.1", "1.0.0.1"])
    async with client(recorder, resolver) as http:
        answer = await http.post("https://public:8443/a?b=c", content=b"x", headers={"Accept-Encoding": "gzip"})
    assert answer.json() == {"ok": True}
    (request,) = recorder.requests
    assert str(request.url) == "https://1.1.1.1:8443/a?b=c"
    assert request.headers["host"] == "public:8443"
    assert request.extensions["sni_hostname"] == "public"
    assert request.headers["accept-encoding"] == "identity"
    assert resolver.asked == ["public:8443"], "resolved once"


async def test_ipv6_addresses_and_allowed_networks() -> None:
    recorder, resolver = Recorder(), Resolver(six=["fd00::5"])
    async with client(recorder, resolver, allowed_networks=["fd00::/8"], allow_http=True) as http:
        await http.get("http://six/")
    assert str(recorder.requests[0].url) == "http://[fd00::5]/"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://public/", "https_only"),
        ("ftp://public/", "scheme"),
        ("https://me:secret@public/", "url"),
        ("https://private/", "address"),
        ("https://both/", "address"),
    ],
)
async def test_where_it_does_not_go(url: str, reason: str) -> None:
    recorder = Recorder()
    assert await refused(recorder, url) == reason
    assert recorder.requests == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(302, headers={"Location": "https://private/"}), "redirect"),
        (httpx.Response(307, headers={"Location": "https://public/"}), "redirect"),
        (httpx.Response(200, headers={"Content-Encoding": "gzip"}), "encoding"),
        (httpx.Response(200, headers={"Content-Length": "5000"}), "too_large"),
    ],
)
async def test_answers_it_does_not_take(answer: httpx.Response, reason: str) -> None:
    recorder = Recorder(answer)
    assert await refused(recorder, "https://public/", max_answer_bytes=4096) == reason
    assert len(recorder.requests) == 1, "a client that would follow gets nothing to follow"


async def test_an_answer_without_a_length_is_cut_off() -> None:
    read = 0

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1024
                yield b"x" * 1024

    reason = await refused(Recorder(httpx.Response(200, stream=Endless())), "https://public/", max_answer_bytes=4096)
    assert reason == "too_large" and read <= 6 * 1024


async def test_a_name_that_is_not_there_is_no_refusal() -> None:
    async with client(Recorder(), Resolver()) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("https://nowhere/")
