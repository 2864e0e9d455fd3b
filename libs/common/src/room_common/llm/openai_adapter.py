"""The model port over any OpenAI-compatible HTTP API, by the ``openai`` client on its aiohttp transport.

The client signs and sends; bodies are built and read by :mod:`room_common.llm.wire`, because an answer has to be judged
also where it is not what the client's models expect, and because building those models costs more than the call.
The client's own retries are off: ours are bounded in total, honour ``Retry-After`` and are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai
import tenacity
from prometheus_client import CollectorRegistry

from room_common.errors import DependencyUnavailable, RoomError
from room_common.llm import wire
from room_common.llm.failures import PASSING, ParameterRefused, classify, describe
from room_common.llm.metrics import LlmMetrics
from room_common.llm.port import ChatRequest, Completion, EventRejected, OverrideRejected
from room_common.llm.settings import OPENAI_URL, LlmSettings
from room_common.llm.spans import chat_span, tell
from room_common.service.parts import Part
from room_common.telemetry.tracing import event

T = TypeVar("T")

CLOSE_SECONDS = 5.0
REMEMBERED_MODELS = 256
REFUSED_OVERRIDE_SECONDS = 300.0
"""So long a refused override is not tried again: every call would pay a refusal first."""


class OpenAiLlm(Part):
    """:class:`room_common.llm.port.Llm` for OpenAI-compatible servers. As a part it only closes its connections.

    ``concurrency`` bounds the calls in flight; a call keeps its place while it backs off, so that a provider in trouble
    gets less.
    """

    name = "llm"

    def __init__(self, settings: LlmSettings, registry: CollectorRegistry, *, concurrency: int | None = None) -> None:
        self._settings = settings
        self._at = urlsplit(settings.base_url or OPENAI_URL).netloc.rpartition("@")[2]
        self._metrics = LlmMetrics.build(registry)
        self._slots = asyncio.Semaphore(concurrency or settings.concurrency)
        self._dialects: OrderedDict[str, wire.Dialect] = OrderedDict()
        self._refused: OrderedDict[str, float] = OrderedDict()
        # Whom Room calls, and as whom, is said by ROOM_* settings only: the client would also read OPENAI_* variables.
        self._client = openai.AsyncOpenAI(
            api_key=settings.api_key.get_secret_value() if settings.api_key else "none",
            base_url=settings.base_url or OPENAI_URL,
            max_retries=0,
            http_client=openai.DefaultAioHttpClient(follow_redirects=False),
        )
        self._client.organization = self._client.project = None

    async def complete(self, request: ChatRequest) -> Completion:
        """See :meth:`room_common.llm.port.Llm.complete`."""
        async with self._slots:
            started = time.monotonic()
            outcome = "unforeseen"
            try:
                completion = await self._with_fallback(request)
            except DependencyUnavailable as error:
                outcome = "provider"
                self._metrics.up.set(0)
                error.at = self._at
                raise
            except EventRejected:
                outcome = "rejected"
                self._metrics.up.set(1)
                raise
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            else:
                outcome = ""
                self._metrics.answered(request.tier, completion)
                return completion
            finally:
                if outcome:
                    self._metrics.requests.labels(request.tier, outcome).inc()
                self._metrics.duration.labels(request.tier).observe(time.monotonic() - started)

    async def stop(self) -> None:
        """Close the connections; takes at most a few seconds."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        except (TimeoutError, aiohttp.ClientError, httpx2.HTTPError):
            pass  # nothing is in flight that anybody waits for

    async def _with_fallback(self, request: ChatRequest) -> Completion:
        default = self._settings.model(request.tier)
        own = request.model
        if own is None or own == default:
            return await self._with_retries(request, default, override=False)
        if self._refused.get(own, 0.0) <= time.monotonic():
            try:
                return await self._with_retries(request, own, override=True)
            except OverrideRejected:
                _remember(self._refused, own, time.monotonic() + REFUSED_OVERRIDE_SECONDS)
        return replace(await self._with_retries(request, default, override=False), fallback=True)

    async def _with_retries(self, request: ChatRequest, model: str, *, override: bool) -> Completion:
        with chat_span(request, model, self._at) as call:
            completion = await self._tried(request, model, override=override)
            tell(call, completion)
            return completion

    async def _tried(self, request: ChatRequest, model: str, *, override: bool) -> Completion:
        timeout = request.timeout or self._settings.timeout(request.tier)

        def again(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            reason = error.kind if isinstance(error, DependencyUnavailable | EventRejected) else "other"
            self._metrics.retries.labels(request.tier, reason).inc()
            event("retry", {"error.type": reason})

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(self._worth_retrying),
            stop=tenacity.stop_after_attempt(self._settings.max_retries + 1),
            wait=self._back_off,
            before_sleep=again,
            reraise=True,
        )
        last: RoomError | None = None

        async def attempt() -> Completion:
            nonlocal last
            try:
                return await self._adapted(request, model, timeout, override=override)
            except RoomError as error:
                last = error
                raise

        try:
            async with asyncio.timeout(timeout * self._settings.total_factor):
                return await retrying(attempt)
        except TimeoutError:
            pass
        # The total time was up during a back-off or a further try: what failed before says why.
        raise last if isinstance(last, DependencyUnavailable) else DependencyUnavailable("llm", "timeout")

    def _worth_retrying(self, error: BaseException) -> bool:
        if isinstance(error, EventRejected):
            return error.kind == "no_choices"
        if not isinstance(error, DependencyUnavailable) or error.kind not in PASSING:
            return False
        return error.retry_after is None or error.retry_after <= self._settings.retry_max_seconds

    def _back_off(self, state: tenacity.RetryCallState) -> float:
        jittered = tenacity.wait_random_exponential(
            multiplier=self._settings.retry_base_seconds, max=self._settings.retry_max_seconds
        )(state)
        error = state.outcome.exception() if state.outcome else None
        wished = error.retry_after if isinstance(error, DependencyUnavailable) else None
        # On top of the wish, so that callers who were refused together do not come back together.
        return jittered if wished is None else wished + min(jittered, self._settings.retry_base_seconds)

    async def _adapted(self, request: ChatRequest, model: str, timeout: float, *, override: bool) -> Completion:
        """One try, said again without a parameter the model refuses; what it takes is remembered once it answered."""
        dialect = self._dialects.get(model, wire.Dialect())
        while True:
            try:
                completion = await self._once(request, model, dialect, timeout, override=override)
            except ParameterRefused as refusal:
                spoken, dialect = dialect, dialect.without(refusal.parameter)
                if dialect == spoken:
                    raise EventRejected("invalid_request") from None
                continue
            if dialect != wire.Dialect():
                _remember(self._dialects, model, dialect)
            return completion

    async def _once(
        self, request: ChatRequest, model: str, dialect: wire.Dialect, timeout: float, *, override: bool
    ) -> Completion:
        answer = await self._post(wire.request_body(request, model, dialect), timeout)
        if isinstance(answer, RoomError):
            raise answer
        status, headers, content = answer
        body = wire.decode(content)
        if status == 200 and isinstance(body, dict) and body.get("error") and not body.get("choices"):
            # Routers answer 200 and put the upstream's status into the body.
            code = body["error"].get("code") if isinstance(body["error"], dict) else None
            status = code if isinstance(code, int) and 400 <= code <= 599 else 502
        if status != 200:
            raise classify(describe(status, headers, body), override=override, now=datetime.now(UTC))
        return wire.completion(body, model)

    async def _post(self, body: bytes, timeout: float) -> tuple[int, dict[str, str], bytes] | RoomError:
        """Send ``body``. Failures are returned, so that what is raised has no context that quotes a key or a prompt."""
        connect = min(timeout, self._settings.connect_timeout_seconds)
        try:
            async with asyncio.timeout(timeout):
                response = await self._client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=body,
                    options={
                        "headers": {"content-type": "application/json"},
                        "timeout": httpx2.Timeout(timeout, connect=connect),
                        "security": {"bearer_auth": True},
                    },
                )
                return response.status_code, {}, response.content
        except openai.APIStatusError as error:
            return error.status_code, {k.lower(): v for k, v in error.response.headers.items()}, error.response.content
        except TimeoutError:
            return DependencyUnavailable("llm", "timeout")
        except (openai.APIError, aiohttp.ClientError, httpx2.HTTPError, OSError) as error:
            return DependencyUnavailable("llm", _transport_kind(error))


def _transport_kind(error: BaseException | None) -> str:
    """``connect`` or ``timeout``. The transport calls a reset connection a timeout, so the cause decides."""
    timed_out = False
    while error is not None:
        timed_out = timed_out or isinstance(error, openai.APITimeoutError | TimeoutError)
        if isinstance(error, aiohttp.ClientError) and not isinstance(error, TimeoutError):
            return "connect"
        error = error.__cause__
    return "timeout" if timed_out else "connect"


def _remember(memory: OrderedDict[str, T], model: str, value: T) -> None:
    memory[model] = value
    memory.move_to_end(model)
    while len(memory) > REMEMBERED_MODELS:
        memory.popitem(last=False)
