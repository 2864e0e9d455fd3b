"""Answering an agent on the local channel: the record that ingest makes of a post to the channel's URL."""

from __future__ import annotations

import orjson

from room_admin.deliveries import Sender
from room_admin.problems import Problem
from room_admin.routes.parameters import room_of
from room_common.contracts import envelope as envelopes
from room_common.contracts.envelope import Envelope
from room_common.contracts.topics import REPLIES_RAW
from room_common.identity import new_id
from room_common.postgres import access, configuration, deliveries, listings
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

_CHANNEL = "local"


class Answers:
    """Sends what a person answers. What becomes of it is decided where every reply is: in the scheduler."""

    def __init__(self, database: Database, sender: Sender) -> None:
        self._database = database
        self._sender = sender

    async def answer(self, slug: str, text: str, caller: Caller) -> str:
        """Answer as the person whom the room writes to; returns that name. Audited, without the text.

        Raises ``Problem``: 404, 409 when the room does not talk on the local channel; and ``DependencyUnavailable``:
        it may have been sent all the same.
        """
        async with self._database.transaction() as conn:
            instance = await room_of(conn, slug)
            room = await listings.room(conn, instance)
            if room is None or room["channel"] != _CHANNEL:
                raise Problem(
                    409,
                    f"the room {slug!r} does not talk on the local channel; on others people answer at their provider",
                )
            channel = next(row for row in await listings.channels(conn, instance) if row["type"] == _CHANNEL)
            tokens = await configuration.read_tokens(conn, channel_id=channel["id"])
            if not tokens:
                raise Problem(409, "the channel has no URL that works; apply the room again")
            envelope = Envelope(
                id=new_id(),
                token_sha256=bytes(tokens[0]["token_sha256"]),
                received_at_us=await deliveries.receipt_time(conn),
                content_type="application/json",
                channel=_CHANNEL,
            )
            await access.audit(conn, caller.name, "answer", instance_id=instance, subject=str(envelope.id))
        await self._sender.send(
            REPLIES_RAW,
            key=envelope.token_sha256.hex().encode(),
            value=orjson.dumps({"id": str(envelope.id), "sender": room["target"], "text": text}),
            headers=envelopes.encode(envelope),
        )
        return str(room["target"])
