"""What requests mean: handshakes, replies, limits, Kafka's silence, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from room_ingest.domain.limits import TokenBucket
from room_ingest.exchange import Exchange
from room_ingest.intake import REFUSAL_WAIT
from room_testing.webhook_port import FORGED, OTHER_TOKEN, TOKEN, OpenPort, Port, post

PLAIN = "text/plain; charset=utf-8"


def get(query: bytes, token: bytes = TOKEN) -> bytes:
    return b"GET /webhooks/" + token + b"?" + query + b" HTTP/1.1\r\nHost: room.test\r\n\r\n"


async def test_handshakes_are_echoed_in_place(port: Port) -> None:
    client = await port.connect()
    hub = b"hub.mode=subscribe&hub.challenge=123&hub.verify_token="
    for data, echo in (
        (post(b'{"type":"url_verification","challenge":"abc"}'), b"abc"),
        (post(b'{"token":"t","type":"url_verification","challenge":"<b>"}'), b"<b>"),
        (post(b"", path=b"/webhooks/" + TOKEN + b"?validationToken=Validation%3A+x"), b"Validation: x"),
        (get(hub + TOKEN), b"123"),
    ):
        answer = await client.ask(data)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, echo, PLAIN)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await client.ask(get(hub + OTHER_TOKEN))).status == 403
    assert (await client.ask(get(hub + FORGED, token=FORGED))).status == 403
    assert (await client.ask(get(b""))).status == 405
    assert port.webhooks.records == []
    assert port.count("handshake") == 4


async def test_a_handshake_with_a_guessed_token_gets_the_ordinary_answer(port: Port) -> None:
    client = await port.connect()
    for data in (
        post(b'{"type":"url_verification","challenge":"abc"}', token=FORGED),
        post(b"", path=b"/webhooks/" + FORGED + b"?validationToken=x"),
    ):
        answer = await client.ask(data)
        assert (answer.body, answer.headers["content-type"]) == (b'{"ok":true}', "application/json")


async def test_everything_else_is_an_event_byte_for_byte(port: Port) -> None:
    bodies = [b"", b"null", b"\x00\xff", b'{"type":"url_verification","challenge":"abc","x":1}', b"\x1f\x8b gzip?"]
    client = await port.connect()
    for body in bodies:
        assert (await client.ask(post(body, headers=(b"Content-Encoding: gzip",)))).body == b'{"ok":true}'
    assert [record.value for record in port.webhooks.records] == bodies
    assert {record.key for record in port.webhooks.records} == {sha256(TOKEN).hexdigest()[:16].encode()}


class Later:
    """A loop whose timers the test lets go off."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        self.calls.append((seconds, call, arguments))


@pytest.mark.parametrize(
    ("request_of_nobody", "status"),
    [
        (post(b"x" * 9000, token=FORGED), 200),
        (post(path=b"/elsewhere"), 404),
        (get(b"hub.mode=subscribe&hub.challenge=1&hub.verify_token=" + FORGED, token=FORGED), 403),
        (get(b""), 405),
        (b"DELETE /webhooks/" + TOKEN + b" HTTP/1.1\r\nHost: room.test\r\n\r\n", 405),
    ],
)
async def test_a_flood_from_strangers_waits_for_its_answers_and_nobody_else_does(
    port: Port, request_of_nobody: bytes, status: int
) -> None:
    intake, later = cast(Any, port.server.handler), Later()
    intake._loop, intake._refusals = later, TokenBucket(1e-9, 2, 0.0)
    stranger, sender = await port.connect(), await port.connect()
    for _ in range(2):
        assert (await stranger.ask(request_of_nobody)).status == status
    await stranger.send(request_of_nobody)
    assert (await sender.ask(post())).status == 200
    ((seconds, call, arguments),) = later.calls
    assert seconds == REFUSAL_WAIT
    kept = cast(Exchange, cast(Any, call).__self__)
    assert (kept.body, kept.values) == (b"", [])
    call(*arguments)
    assert (await stranger.answer()).status == status
    assert (await sender.ask(post())).status == 200
    assert len(later.calls) == 1


async def test_replies_go_to_their_own_topic(port: Port) -> None:
    client = await port.connect()
    assert (await client.ask(post(b"yes", path=b"/channels/local/" + TOKEN))).body == b'{"ok":true}'
    assert (await client.ask(post(b"hook"))).body == b'{"ok":true}'
    slack = b'{"type":"url_verification","challenge":"abc"}'
    assert (await client.ask(post(slack, path=b"/channels/local/" + TOKEN))).body == b'{"ok":true}'
    assert [record.value for record in port.replies.records] == [b"yes", slack]
    assert port.replies.records[0].key == sha256(TOKEN).hexdigest().encode()
    assert port.replies.records[0].envelope.channel == "local"
    assert port.webhooks.records[0].envelope.channel is None


async def test_silence_of_kafka_is_503_and_the_next_may_succeed(port: Port) -> None:
    client = await port.connect()
    port.webhooks.auto = False
    answer = await client.ask(post())
    assert (answer.status, answer.headers["retry-after"], answer.body) == (
        503,
        "2",
        b'{"ok":false,"error":"unavailable"}',
    )
    assert (await client.ask(post())).status == 503
    port.webhooks.auto = True
    assert (await client.ask(post())).status == 200
    assert port.metrics.in_flight == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"max_in_flight": 2},
        {"max_in_flight_per_token": 2},
        {"max_in_flight_bytes": (1 << 20) + 1000},
        {"max_in_flight_bytes_per_token": (1 << 20) + 1000},
    ],
)
async def test_what_waits_for_kafka_is_bounded(open_port: OpenPort, limits: dict[str, int]) -> None:
    port = await open_port(**limits)
    port.webhooks.auto = None
    by_bytes = any("bytes" in name for name in limits)
    body = b"x" * 60_000 if by_bytes else b"x"
    count = 17 if by_bytes else 2
    client, other = await port.connect(), await port.connect()
    await client.send(post(body) * count)
    await port.webhooks.arrived(count)
    answer = await other.ask(post(body))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    await other.send(post(b"", token=OTHER_TOKEN))
    if "max_in_flight" not in limits:  # a small one, and another token: still within this limit
        await port.webhooks.arrived(count + 1)
    else:
        assert (await other.answer()).status == 503
    for record in port.webhooks.records:
        record.done(True)
    port.webhooks.auto = True
    assert [(await client.answer()).status for _ in range(count)] == [200] * count
    assert (await client.ask(post(body))).status == 200


async def test_large_bodies_of_one_token_leave_room_for_others(open_port: OpenPort) -> None:
    port = await open_port(max_in_flight_bytes=2 << 20, max_in_flight_bytes_per_token=1 << 20)
    port.webhooks.auto = None
    client, other = await port.connect(), await port.connect()
    body = b"x" * 60_000
    await client.send(post(body) * 30)
    await port.webhooks.arrived(17)
    await other.send(post(body, token=OTHER_TOKEN))
    await port.webhooks.arrived(18)


async def test_a_token_has_a_rate_and_others_do_not_feel_it(open_port: OpenPort) -> None:
    port = await open_port(rate_per_token=0.001, burst_per_token=3)
    client = await port.connect()
    statuses = [(await client.ask(post())).status for _ in range(5)]
    assert statuses == [200, 200, 200, 503, 503]
    assert (await client.ask(post(token=OTHER_TOKEN))).status == 200
    assert port.count("rate_limited") == 2


async def test_what_is_beyond_a_token_s_rate_waits_like_what_strangers_send(open_port: OpenPort) -> None:
    port = await open_port(rate_per_token=1e-9, burst_per_token=1)
    intake, later = cast(Any, port.server.handler), Later()
    intake._loop, intake._refusals = later, TokenBucket(1e-9, 1, 0.0)
    client = await port.connect()
    assert [(await client.ask(post())).status for _ in range(2)] == [200, 503]
    await client.send(post())
    other = await port.connect()
    assert (await other.ask(post(token=OTHER_TOKEN))).status == 200
    ((seconds, call, arguments),) = later.calls
    assert seconds == REFUSAL_WAIT
    call(*arguments)
    assert (await client.answer()).status == 503


async def test_whether_kafka_answers_is_told(port: Port) -> None:
    problems = iter((None, "no leader"))
    port.metrics.problem = lambda: next(problems)
    for up in (1, 0):
        assert port.registry.get_sample_value("room_dependency_up", {"dependency": "kafka"}) == up


async def test_figures_are_exported_without_a_token(port: Port) -> None:
    client = await port.connect()
    await client.ask(post(b"x" * 300))
    await client.ask(post(token=FORGED))
    await client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    text = generate_latest(port.registry).decode()
    for line in (
        'room_ingest_answers_total{answer="ok",route="webhooks"} 1.0',
        'room_ingest_answers_total{answer="unknown_token",route="webhooks"} 1.0',
        'room_ingest_answers_total{answer="ok",route="channels"} 0.0',
        'room_ingest_requests_total{code="200",route="webhooks"} 2.0',
        'room_ingest_requests_total{code="404",route="other"} 1.0',
        'room_ingest_request_body_bytes_bucket{le="1024.0",route="webhooks"} 2.0',
        'room_ingest_request_body_bytes_sum{route="webhooks"} 302.0',
        'room_ingest_request_duration_seconds_count{route="webhooks"} 2.0',
        "room_ingest_requests_in_flight 0.0",
        "room_ingest_connections 1.0",
    ):
        assert line in text
    assert TOKEN.decode() not in text


async def test_the_access_log_names_no_token_and_no_query(
    open_port: OpenPort, capsys: pytest.CaptureFixture[str]
) -> None:
    port = await open_port(access_log=True)
    client = await port.connect()
    await client.ask(post(path=b"/webhooks/" + TOKEN + b"?secret=s3cret"))
    output = capsys.readouterr().out
    assert "webhooks" in output
    assert TOKEN.decode() not in output
    assert "s3cret" not in output
