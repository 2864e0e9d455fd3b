"""Channels of replies: what each provider expects to read, and Slack's handshake."""

from __future__ import annotations

import json

import pytest

from room_testing.webhook_port import FORGED, TOKEN, OpenPort, post


@pytest.mark.parametrize(
    ("channel", "content_type", "answer"),
    [
        (b"local", "application/json", b'{"ok":true}'),
        (b"slack", "text/plain; charset=utf-8", b""),
        (b"telegram", "text/plain; charset=utf-8", b""),
        (b"whatsapp", "text/xml; charset=utf-8", b"<Response/>"),
    ],
)
async def test_each_provider_reads_what_it_expects_whether_or_not_the_token_is_known(
    open_port: OpenPort, channel: bytes, content_type: str, answer: bytes
) -> None:
    port = await open_port()
    client = await port.connect()
    for token in (TOKEN, FORGED):
        answered = await client.ask(post(b"a=b", path=b"/channels/%b/%b" % (channel, token)))
        assert (answered.status, answered.body) == (200, answer)
        assert answered.headers["content-type"] == content_type
    (record,) = port.replies.records
    assert record.envelope.channel == channel.decode() and record.value == b"a=b"
    assert port.count("ok", "channels") == 1 and port.count("unknown_token", "channels") == 1
    await client.close()


async def test_slack_verifies_the_url_of_a_channel(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a", "token": "old"}).encode()
    answered = await client.ask(post(body, path=b"/channels/slack/" + TOKEN))
    assert (answered.status, answered.body) == (200, b"3eZbrw1a")
    assert port.replies.records == []
    await client.ask(post(body, path=b"/channels/telegram/" + TOKEN))
    assert len(port.replies.records) == 1, "elsewhere it is a reply like any other"
    await client.close()


async def test_other_channels_do_not_exist(open_port: OpenPort) -> None:
    port = await open_port()
    client = await port.connect()
    for channel in (b"webhook", b"pigeon", b"SLACK"):
        assert (await client.ask(post(b"{}", path=b"/channels/%b/%b" % (channel, TOKEN)))).status == 404
    await client.close()
