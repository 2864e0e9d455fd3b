"""The rehearsal model's HTTP side: the two API calls Room makes, a page about itself, and a delay that can be set."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from room_local.loopback import BadBody, application, page, problem, read_json, text
from room_local.rehearsal import supervisor, verdict
from room_local.rehearsal.answers import GREETING, MODELS, BadRequest, answer

LONGEST_BODY = 8 * 1024 * 1024
LONGEST_DELAY = 600.0
SHOWN_CALLS = 30


@dataclass(frozen=True, slots=True)
class Delay:
    """Answers wait ``seconds``; with ``when``, only those to requests whose text contains it."""

    seconds: float = 0.0
    when: str | None = None

    def of(self, request: object) -> float:
        """The delay of one request, in seconds."""
        if not self.seconds or self.when is None:
            return self.seconds
        return self.seconds if self.when in orjson.dumps(request).decode() else 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """What the page shows of a call: nothing of its text."""

    at: datetime
    kind: str
    tokens: int
    seconds: float


class Rehearsal:
    """The handlers and their counters."""

    def __init__(self, delay: Delay) -> None:
        self.delay = delay
        self.kinds: Counter[str] = Counter()
        self.tokens = 0
        self.calls: deque[Call] = deque(maxlen=SHOWN_CALLS)

    def app(self) -> Starlette:
        """The application."""
        return application(
            [
                Route("/", self._page),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/rehearsal/delay", self._set_delay, methods=["POST"]),
                Route("/rehearsal/state", self._state),
            ]
        )

    async def _complete(self, request: Request) -> JSONResponse:
        started = time.monotonic()
        try:
            body = await read_json(request, LONGEST_BODY)
            answered = answer(body, created=int(time.time()))
        except BadBody as error:
            return problem(error)
        except BadRequest as error:
            described = {"message": str(error), "type": "invalid_request_error", "param": error.parameter, "code": None}
            return JSONResponse({"error": described}, status_code=400)
        await asyncio.sleep(self.delay.of(body))
        usage = answered.body["usage"]
        assert isinstance(usage, dict)
        self.kinds[answered.kind] += 1
        self.tokens += usage["total_tokens"]
        self.calls.append(
            Call(datetime.now(UTC), answered.kind, usage["total_tokens"], time.monotonic() - started),
        )
        return JSONResponse(answered.body)

    async def _models(self, _request: Request) -> JSONResponse:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "room-rehearsal"} for name in MODELS]
        return JSONResponse({"object": "list", "data": models})

    async def _set_delay(self, request: Request) -> JSONResponse:
        try:
            self.delay = _delay(await read_json(request, 10_000))
        except BadBody as error:
            return problem(error)
        return JSONResponse({"seconds": self.delay.seconds, "when": self.delay.when})

    async def _state(self, _request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "rehearsal": True,
                "calls": sum(self.kinds.values()),
                "kinds": dict(self.kinds),
                "tokens": self.tokens,
                "delay": {"seconds": self.delay.seconds, "when": self.delay.when},
            }
        )

    async def _page(self, _request: Request) -> HTMLResponse:
        rules = "".join(f"<li>{text(rule)}</li>" for rule in (*verdict.RULES, *supervisor.RULES))
        kinds = "".join(f"<tr><td>{text(kind)}<td>{count}</tr>" for kind, count in sorted(self.kinds.items()))
        rows = "".join(
            f"<tr><td>{call.at:%H:%M:%S}<td>{text(call.kind)}<td>{call.tokens}<td>{call.seconds:.3f} s</tr>"
            for call in reversed(self.calls)
        )
        when = "" if self.delay.when is None else " for some requests"
        return page(
            "Room's rehearsal model",
            f'<p class="note">{text(GREETING)} Set <code>ROOM_LLM__API_KEY</code> or <code>ROOM_LLM__BASE_URL</code> '
            f"to use a real one.</p><h2>Its rules</h2><ol>{rules}</ol>"
            f"<p>Answers wait {self.delay.seconds:g} s{when}; token counts are bytes divided by four.</p>"
            f"<h2>Answers so far: {sum(self.kinds.values())}, {self.tokens} tokens</h2>"
            f"<table><tr><th>kind<th>answers</tr>{kinds}</table>"
            f"<h2>Latest</h2><table><tr><th>UTC<th>kind<th>tokens<th>took</tr>{rows}</table>",
            refresh_seconds=5,
        )


def _delay(body: object) -> Delay:
    seconds = body.get("seconds") if isinstance(body, Mapping) else None
    when = body.get("when") if isinstance(body, Mapping) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_DELAY:
        raise BadBody(400, f"seconds is a number from 0 to {LONGEST_DELAY:g}")
    if when is not None and not isinstance(when, str):
        raise BadBody(400, "when is a string or null")
    return Delay(float(seconds), when or None)
