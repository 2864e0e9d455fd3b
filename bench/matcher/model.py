"""A model that costs nothing: answers "no" to everything, at once or after a delay. ``model.py PORT``.

``POST /delay`` with ``{"seconds": 0.5, "when": "text"}`` sets the delay of requests that contain the text (all, if it
is empty). No framework: it must not be what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

_ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "no"}}],
        "usage": {"prompt_tokens": 500, "completion_tokens": 1, "total_tokens": 501},
    }
).encode()


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


_COMPLETION = _response(_ANSWER)


class Model:
    """What all connections share."""

    seconds = 0.0
    when = b""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with a Content-Length, one request after the other."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end]).lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            self.request(head, body)

    def request(self, head: bytes, body: bytes) -> None:
        model = self.model
        if head.startswith(b"post /delay"):
            told = json.loads(body)
            model.seconds, model.when = told["seconds"], told.get("when", "").encode()
            self.answer(_response(b"{}"))
        elif model.seconds and model.when in body:
            asyncio.get_running_loop().call_later(model.seconds, self.complete)
        else:
            self.complete()

    def complete(self) -> None:
        self.answer(_COMPLETION)

    def answer(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)  # type: ignore[attr-defined]


async def main(port: int) -> None:
    """Serve for ever."""
    model = Model()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(model), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
