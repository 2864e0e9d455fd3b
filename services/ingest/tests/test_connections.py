"""HTTP as it is written, sent over real sockets: ordinary, odd and hostile."""

from __future__ import annotations

import asyncio
import gc

import pytest

from room_ingest.http import Connection
from room_testing.webhook_port import CLOSED, FORGED, TOKEN, OpenPort, Port, post

MAX_BODY = 65_536
TOO_LARGE = b'{"ok":false,"error":"payload_too_large"}'
HOST = b"Host: room.test\r\n"


def chunked(*chunks: bytes, token: bytes = TOKEN) -> bytes:
    head = b"POST /webhooks/" + token + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


async def test_an_event_is_published_and_answered_byte_for_byte(port: Port) -> None:
    client = await port.connect()
    answer = await client.ask(post(b'{"a": 1}', headers=(b"Content-Type: application/json", b"X-GitHub-Event: push")))
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert answer.headers["content-type"] == "application/json"
    assert "connection" not in answer.headers
    (record,) = port.webhooks.records
    assert record.value == b'{"a": 1}'
    assert record.envelope.http == {"content-type": "application/json", "x-github-event": "push"}
    assert record.envelope.outcome == "ok"
    assert port.count("ok") == 1


async def test_requests_share_a_connection_and_may_arrive_in_any_pieces(port: Port) -> None:
    client = await port.connect()
    data = post(b"first") + chunked(b"sec", b"ond")
    for size in (1, 7, len(data)):
        for start in range(0, len(data), size):
            await client.send(data[start : start + size])
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    assert [record.value for record in port.webhooks.records] == [b"first", b"second"] * 3


async def test_pipelined_requests_are_answered_in_order(port: Port) -> None:
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post(b"1") + post(b"2") + b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n" + post(b"3"))
    await port.webhooks.arrived(3)
    first, second, third = port.webhooks.records
    third.done(True)
    second.done(False)
    first.done(True)
    assert [(await client.answer()).status for _ in range(4)] == [200, 503, 404, 200]


async def test_many_pipelined_requests_are_all_answered(open_port: OpenPort) -> None:
    port = await open_port(max_pipelined=4)
    client = await port.connect()
    await client.send(post(b"x") * 500)
    assert [(await client.answer()).status for _ in range(500)] == [200] * 500


@pytest.mark.parametrize("body", [b"x" * MAX_BODY, "€".encode() * (MAX_BODY // 3) + b"a"])
async def test_a_body_of_the_cap_in_bytes_is_an_event(port: Port, body: bytes) -> None:
    client = await port.connect()
    assert (await client.ask(post(body))).body == b'{"ok":true}'
    assert (await client.ask(chunked(body[:1000], body[1000:]))).body == b'{"ok":true}'
    assert [record.value for record in port.webhooks.records] == [body, body]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"x" * (MAX_BODY + 1)),
        chunked(b"x" * MAX_BODY, b"x"),
        chunked(*[b"x" * 999] * 700),
        post(b"x" * 900_000),
        post(b"x" * 3_000_000),
        post(b"", length=10_000_000, headers=(b"Expect: 100-continue",)),
        post(b"short", length=MAX_BODY + 1),
    ],
    ids=["by one", "chunked by one", "chunked", "900 KB", "3 MB", "expect", "lying length"],
)
async def test_a_body_over_the_cap_is_answered_and_recorded_without_it(port: Port, request_bytes: bytes) -> None:
    client = await port.connect()
    answer = await client.ask(request_bytes)
    assert (answer.status, answer.body) == (200, TOO_LARGE)
    assert answer.headers["connection"] == "close"
    assert await client.rest() == CLOSED
    (record,) = port.webhooks.records
    assert (record.value, record.envelope.outcome) == (b"", "too_large")


async def test_size_is_answered_alike_for_a_token_that_is_not_ours(port: Port) -> None:
    client = await port.connect()
    assert (await client.ask(post(b"x" * (MAX_BODY + 1), token=FORGED))).body == TOO_LARGE
    assert port.webhooks.records == []


async def test_a_guessed_token_gets_the_same_answer_and_no_record(port: Port) -> None:
    client = await port.connect()
    real = await client.ask(post())
    for token in (FORGED, b"x", TOKEN[:-1], TOKEN[:-1] + b"0", TOKEN.upper(), b"%2e%2e", b"a b".replace(b" ", b"+")):
        guessed = await client.ask(post(token=token))
        assert (guessed.status, guessed.body, guessed.headers.keys()) == (200, real.body, real.headers.keys())
    assert len(port.webhooks.records) == 1
    assert port.count("unknown_token") == 7


async def test_expect_gets_its_continue_before_the_body(port: Port) -> None:
    client = await port.connect()
    head = post(b"", length=3, headers=(b"Expect: 100-continue",))
    await client.send(head)
    assert (await client.answer()).status == 100
    assert (await client.ask(b"abc")).status == 200
    assert port.webhooks.records[0].value == b"abc"


async def test_continue_waits_for_its_turn_behind_a_pipelined_request(port: Port) -> None:
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post(b"1") + post(b"", length=1, headers=(b"Expect: 100-continue",)))
    await port.webhooks.arrived(1)
    port.webhooks.records[0].done(True)
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 100


async def test_http_10_closes_unless_asked_to_stay(port: Port) -> None:
    client = await port.connect()
    head = b"POST /webhooks/" + TOKEN + b" HTTP/1.0\r\nContent-Length: 1\r\n"
    stays = await client.ask(head + b"Connection: keep-alive\r\n\r\na")
    assert (stays.status, stays.headers["connection"]) == (200, "keep-alive")
    ends = await client.ask(head + b"\r\nb")
    assert (ends.status, ends.headers["connection"]) == (200, "close")
    assert await client.rest() == CLOSED


async def test_connection_close_ends_it_and_what_follows_is_not_a_request(port: Port) -> None:
    client = await port.connect()
    await client.send(post(b"a", headers=(b"Connection: close",)) + post(b"b"))
    assert (await client.answer()).headers["connection"] == "close"
    assert await client.rest() == CLOSED
    assert [record.value for record in port.webhooks.records] == [b"a"]


async def test_a_client_that_sent_all_and_shut_its_side_still_gets_the_answer(port: Port) -> None:
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post(b"a"))
    client.writer.write_eof()
    await port.webhooks.arrived(1)
    await asyncio.sleep(0.05)
    port.webhooks.records[0].done(True)
    assert (await client.answer()).status == 200
    assert await client.rest() == CLOSED


async def test_a_client_gone_in_the_middle_of_a_body_leaves_nothing(port: Port) -> None:
    client = await port.connect()
    await client.send(post(b"half", length=100))
    await client.close()
    while port.metrics.connections:
        await asyncio.sleep(0.01)
    assert port.webhooks.records == []


async def test_a_client_gone_before_its_answer_does_no_harm(port: Port) -> None:
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post(b"a") + post(b"b"))
    await port.webhooks.arrived(2)
    await client.close()
    await asyncio.sleep(0.05)
    for record in port.webhooks.records:
        record.done(True)
    assert port.metrics.in_flight == 0
    while port.metrics.connections:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("headers", [b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_the_wish_for_another_protocol_is_ignored(port: Port, headers: bytes) -> None:
    body = b"3\r\nabc\r\n0\r\n\r\n" if b"chunked" in headers else b"abc"
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    client = await port.connect()
    data = b"POST /webhooks/" + TOKEN + b" HTTP/1.1\r\n" + HOST + wish + headers + b"\r\n" + body
    assert (await client.ask(data)).status == 200
    assert (await client.ask(data[:-4], data[-4:])).status == 200
    assert (await client.ask(post(b"def"))).status == 200
    assert [record.value for record in port.webhooks.records] == [b"abc", b"abc", b"def"]


async def test_wishes_for_another_protocol_are_not_followed_without_end(port: Port) -> None:
    client = await port.connect()
    await client.send(post(b"", headers=(b"Connection: upgrade", b"Upgrade: h2c")) * 2000)
    statuses: list[int] = []
    while not statuses or statuses[-1] == 200:
        statuses.append((await client.answer()).status)
    assert statuses[-1] == 400


HEAD = b"POST /webhooks/" + TOKEN + b" HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        HEAD + HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
        HEAD + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        HEAD + HOST + b"Content-Length: 5, 5\r\n\r\nabcde",
        HEAD + HOST + b"Content-Length: -5\r\n\r\nabcde",
        HEAD + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n",
        HEAD.replace(b"\r\n", b"\n") + b"Host: a\nContent-Length: 0\n\n",
        HEAD + b"Host: a\nContent-Length: 0\r\n\r\n",
        HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n",
        HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
        HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        HEAD + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + HOST + b"Transfer-Encoding: identity\r\n\r\n",
        HEAD + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD.replace(b"1.1", b"2.0") + HOST + b"\r\n",
        HEAD.replace(b"1.1", b"0.9") + HOST + b"\r\n",
        HEAD.replace(b" HTTP/1.1", b"") + b"\r\n",
        HEAD + b"Content-Length: 0\r\n\r\n",
        HEAD + HOST + HOST + b"Content-Length: 0\r\n\r\n",
        HEAD + HOST + b"X: a\r\n b\r\n\r\n",
        HEAD + b"Host : a\r\n\r\n",
        HEAD + HOST + b"X: a\x00b\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_and_the_connection_closed(port: Port, data: bytes) -> None:
    client = await port.connect()
    answer = await client.ask(data)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await client.rest() == CLOSED
    assert port.webhooks.records == []


async def test_garbage_after_a_request_does_not_take_its_answer(port: Port) -> None:
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post(b"good") + b"garbage\r\n\r\n")
    await port.webhooks.arrived(1)
    port.webhooks.records[0].done(True)
    assert [(await client.answer()).status for _ in range(2)] == [200, 400]
    client = await port.connect()
    port.webhooks.auto = True
    assert (await client.ask(post(b"good"))).status == 200
    assert (await client.ask(b"garbage\r\n\r\n")).status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        (b"POST", b"/", 404),
        (b"POST", b"/webhooks", 404),
        (b"POST", b"/webhooks/", 404),
        (b"POST", b"/webhooks/" + TOKEN + b"/more", 404),
        (b"POST", b"/Webhooks/" + TOKEN, 404),
        (b"POST", b"/channels/pigeon/" + TOKEN, 404),
        (b"POST", b"/channels/local", 404),
        (b"PUT", b"/webhooks/" + TOKEN, 405),
        (b"DELETE", b"/webhooks/" + TOKEN, 405),
        (b"OPTIONS", b"/webhooks/" + TOKEN, 405),
        (b"GET", b"/webhooks/" + TOKEN, 405),
        (b"GET", b"/channels/local/" + TOKEN, 405),
        (b"POST", b"/webhooks/" + TOKEN + b"/", 200),
        (b"POST", b"/webhooks/" + TOKEN + b"?a=b", 200),
        (b"POST", b"http://room.test/webhooks/" + TOKEN, 200),
        (b"POST", b"/channels/local/" + TOKEN, 200),
    ],
)
async def test_methods_and_paths(port: Port, method: bytes, path: bytes, status: int) -> None:
    client = await port.connect()
    data = method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}"
    assert (await client.ask(data)).status == status
    assert (await client.ask(post())).status == 200


async def test_head_is_answered_without_a_body(port: Port) -> None:
    client = await port.connect()
    await client.send(b"HEAD /webhooks/" + TOKEN + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (await client.answer(body=False)).status == 405
    assert (await client.ask(post())).status == 200


async def test_headers_and_target_have_limits(port: Port) -> None:
    for data, status in (
        (post(b"", headers=(b"X: " + b"a" * 100_000,)), 431),
        (post(b"", headers=tuple(b"X-%d: %b" % (n, b"a" * 50) for n in range(1000))), 431),
        (HEAD + HOST + b"X: " + b"a" * 40_000, 431),
        (post(b"", path=b"/webhooks/" + TOKEN + b"?" + b"q" * 9000), 414),
        (post(b"", headers=(b"X: " + b"a" * 30_000,)), 200),
    ):
        client = await port.connect()
        assert (await client.ask(data[:20], data[20:])).status == status


async def test_trailers_are_read_and_forgotten(port: Port) -> None:
    client = await port.connect()
    data = chunked(b"abc")[:-2] + b"X-GitHub-Event: forged\r\n\r\n"
    assert (await client.ask(data)).status == 200
    assert port.webhooks.records[0].envelope.http == {}
    long = chunked(b"abc")[:-2] + b"X: " + b"a" * 40_000 + b"\r\n\r\n"
    assert (await client.ask(long)).status == 431


async def test_a_body_in_tiny_chunks_with_huge_extensions_is_cut_off(port: Port) -> None:
    client = await port.connect()
    await client.send(HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(30):
        await client.send(b"1;" + b"e" * 50_000 + b"\r\nx\r\n")
    assert (await client.answer()).status == 400


async def test_slow_headers_are_cut_off_however_steadily_they_drip(open_port: OpenPort) -> None:
    port = await open_port(headers_seconds=0.6)
    client = await port.connect()
    answer = asyncio.ensure_future(client.answer())
    for byte in HEAD:
        if answer.done():
            break
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0.1)
    assert (await answer).status == 408
    assert await client.rest() == CLOSED


async def test_a_slow_body_is_cut_off_and_others_are_served_meanwhile(open_port: OpenPort) -> None:
    port = await open_port(body_seconds=0.5)
    slow = await port.connect()
    await slow.send(post(b"half", length=100))
    assert (await (await port.connect()).ask(post())).status == 200
    assert (await slow.answer()).status == 408
    assert await slow.rest() == CLOSED
    assert len(port.webhooks.records) == 1


async def test_silent_connections_end_silently(open_port: OpenPort) -> None:
    port = await open_port(headers_seconds=0.3, idle_seconds=0.3)
    silent, idle = await port.connect(), await port.connect()
    assert (await idle.ask(post())).status == 200
    assert await silent.rest() == CLOSED
    assert await idle.rest() == CLOSED


async def test_an_idle_connection_with_a_request_in_hand_stays(open_port: OpenPort) -> None:
    port = await open_port(headers_seconds=0.2, idle_seconds=0.2)
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post())
    await port.webhooks.arrived(1)
    await asyncio.sleep(0.7)
    port.webhooks.records[0].done(True)
    assert (await client.answer()).status == 200


async def test_a_client_that_reads_no_answer_is_dropped(open_port: OpenPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("room_ingest.http.WRITE_SECONDS", 0.3)
    port = await open_port(max_pipelined=100_000)
    client = await port.connect()
    client.reader._limit = 1  # type: ignore[attr-defined]
    with pytest.raises((ConnectionError, TimeoutError)):
        async with asyncio.timeout(30):
            while True:
                await client.send(post(b"") * 500)
    assert not port.metrics.connections


async def test_connections_over_the_limit_are_told(open_port: OpenPort) -> None:
    port = await open_port(max_connections=1)
    first, second = await port.connect(), await port.connect()
    answer = await second.answer()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await first.ask(post())).status == 200


async def test_a_defect_is_answered(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError

    monkeypatch.setattr("room_ingest.intake.keep", broken)
    client = await port.connect()
    answer = await client.ask(post())
    assert (answer.status, answer.headers["connection"]) == (500, "close")


async def test_stopping_answers_what_is_in_hand_and_says_close(open_port: OpenPort) -> None:
    port = await open_port(drain_seconds=5.0)
    port.webhooks.auto = None
    busy, idle, half = await port.connect(), await port.connect(), await port.connect()
    await busy.send(post(b"busy"))
    await half.send(post(b"ha", length=4))
    await port.webhooks.arrived(1)
    stopping = asyncio.ensure_future(port.server.stop())
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionError):
        await port.connect()
    await idle.send(post(b"on its way"))
    await half.send(b"lf")
    await port.webhooks.arrived(3)
    for record in port.webhooks.records:
        record.done(True)
    for client in (busy, idle, half):
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.rest() == CLOSED
        await client.close()
    await stopping
    assert not port.metrics.connections


async def test_stopping_ends_in_time_whatever_clients_do(open_port: OpenPort) -> None:
    port = await open_port(drain_seconds=0.5)
    port.webhooks.auto = None
    client = await port.connect()
    await client.send(post())
    await port.webhooks.arrived(1)
    await port.server.stop()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await client.answer()


async def test_a_connection_that_is_over_leaves_nothing_for_the_collector(port: Port) -> None:
    def living() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    gc.collect()
    before = living()
    gc.disable()
    try:
        for data in (post(), b"nonsense\r\n\r\n", post(length=70_000), b"POST /webhooks/"):
            client = await port.connect()
            await client.send(data)
            await asyncio.sleep(0.02)
            await client.close()
        port.webhooks.records.clear()
        async with asyncio.timeout(5):
            while living() > before:
                await asyncio.sleep(0.02)
    finally:
        gc.enable()
