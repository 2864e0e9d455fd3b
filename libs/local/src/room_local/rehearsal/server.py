"""The rehearsal model's HTTP side: the two API calls Room makes, a page about itself, delays and faults on demand."""

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
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from room_local.loopback import BadBody, application, page, problem, read_json, text
from room_local.rehearsal import supervisor, verdict
from room_local.rehearsal.answers import GREETING, MODELS, BadRequest, answer
from room_local.rehearsal.faults import HANG, KINDS, RESET, BadFault, Fault, Faults, read_faults, wrong

_EXAMPLE = '{"faults": [{"kind": "rate_limit", "times": 3, "retry_after": 2, "when": null}]}'

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
        self.faults = Faults()
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
                Route("/rehearsal/faults", self._set_faults, methods=["POST"]),
                Route("/rehearsal/state", self._state),
            ]
        )

    async def _complete(self, request: Request) -> Response:
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
        fault = self.faults.meet(body)
        if fault is not None:
            return await self._go_wrong(request, fault, answered.body, started)
        usage = answered.body["usage"]
        assert isinstance(usage, dict)
        self.kinds[answered.kind] += 1
        self.tokens += usage["total_tokens"]
        self.calls.append(
            Call(datetime.now(UTC), answered.kind, usage["total_tokens"], time.monotonic() - started),
        )
        return JSONResponse(answered.body)

    async def _go_wrong(self, request: Request, fault: Fault, right: dict[str, object], started: float) -> Response:
        kind = f"fault: {fault.kind}"
        self.kinds[kind] += 1
        self.calls.append(Call(datetime.now(UTC), kind, 0, time.monotonic() - started))
        if fault.kind == RESET:
            return _Cut()
        if fault.kind == HANG:
            while not await request.is_disconnected():  # noqa: ASYNC110 - nothing tells it otherwise
                await asyncio.sleep(0.2)
            return _Cut()
        answered = wrong(fault, right)
        return Response(answered.body, answered.status, dict(answered.headers), media_type="application/json")

    async def _set_faults(self, request: Request) -> JSONResponse:
        try:
            self.faults.replace(read_faults(await read_json(request, 100_000)))
        except BadBody as error:
            return problem(error)
        except BadFault as error:
            return problem(BadBody(400, str(error)))
        return JSONResponse({"faults": self.faults.documents})

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
                "faults": self.faults.documents,
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
        known = "".join(f"<tr><td><code>{text(kind)}</code><td>{text(what)}</tr>" for kind, what in KINDS.items())
        now = ", ".join(
            f"{fault['kind']} ({'all calls' if fault['times'] is None else fault['times']})"
            for fault in self.faults.documents
        )
        return page(
            "Room's rehearsal model",
            f'<p class="note">{text(GREETING)} Set <code>ROOM_LLM__API_KEY</code> or <code>ROOM_LLM__BASE_URL</code> '
            f"to use a real one.</p><h2>Its rules</h2><ol>{rules}</ol>"
            f"<p>Answers wait {self.delay.seconds:g} s{when}; token counts are bytes divided by four.</p>"
            f"<h2>Faults on demand</h2><p>In force: {text(now or 'none')}. <code>POST /rehearsal/faults</code> with "
            f"{text(_EXAMPLE)} replaces them; <code>times</code> null means until further notice, "
            f"<code>when</code> picks the requests that contain a text, an empty list takes all back.</p>"
            f"<table><tr><th>kind<th>what the caller gets</tr>{known}</table>"
            f"<h2>Answers so far: {sum(self.kinds.values())}, {self.tokens} tokens</h2>"
            f"<table><tr><th>kind<th>answers</tr>{kinds}</table>"
            f"<h2>Latest</h2><table><tr><th>UTC<th>kind<th>tokens<th>took</tr>{rows}</table>",
            refresh_seconds=5,
        )


class _Cut(Response):
    """Ends the connection in the middle of an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        raise ConnectionAbortedError("cut off on demand")


def _delay(body: object) -> Delay:
    seconds = body.get("seconds") if isinstance(body, Mapping) else None
    when = body.get("when") if isinstance(body, Mapping) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_DELAY:
        raise BadBody(400, f"seconds is a number from 0 to {LONGEST_DELAY:g}")
    if when is not None and not isinstance(when, str):
        raise BadBody(400, "when is a string or null")
    return Delay(float(seconds), when or None)
