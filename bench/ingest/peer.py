"""What ingest is measured beside: a webhook endpoint as FastAPI and aiokafka make it, acknowledged by all replicas.

It takes any token and any body, checks nothing, adds no headers: everything it leaves out is in its favour.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

from aiokafka import AIOKafkaProducer
from fastapi import FastAPI, Request


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One producer for the life of the process."""
    async with AIOKafkaProducer(
        bootstrap_servers=os.environ["BOOTSTRAP"], acks="all", enable_idempotence=True
    ) as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/{token}")
async def webhook(token: str, request: Request) -> dict[str, bool]:
    """Produce the body and wait for the acknowledgement."""
    key = sha256(token.encode()).hexdigest()[:16].encode()
    await app.state.producer.send_and_wait(os.environ["TOPIC"], await request.body(), key=key)
    return {"ok": True}
