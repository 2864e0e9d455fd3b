"""A model provider that answers every call after a fixed time: tells the human, marks all events, is silent.

It prints its port. It shares no process with what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop
from aiohttp import web

from room_testing.running import diligent


async def main(latency: float) -> None:
    """Serve until killed."""

    async def complete(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if latency:
            await asyncio.sleep(latency)
        said = diligent(body["messages"]) if "tools" in body else {"content": "OK"}
        message = {"role": "assistant", **said}
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in said else "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
        )

    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1])))
