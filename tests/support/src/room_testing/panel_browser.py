"""A browser at the panel, signed in as somebody."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import httpx

from room_admin.panel.sessions import CSRF_HEADER
from room_testing.administering import TOKENS, Administering

ORIGIN = {"Origin": "http://room"}


@dataclass(frozen=True, slots=True)
class Browser:
    """A signed-in browser, as far as HTTP goes."""

    client: httpx.AsyncClient
    csrf: str

    async def page(self, path: str) -> str:
        """A page that is there."""
        answer = await self.client.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.text

    async def change(self, path: str, **form: object) -> httpx.Response:
        """A change as htmx asks for it."""
        headers = ORIGIN | {CSRF_HEADER: self.csrf, "HX-Request": "true"}
        return await self.client.post(path, headers=headers, data=form)


@asynccontextmanager
async def outside(admin: Administering) -> AsyncIterator[httpx.AsyncClient]:
    """A browser without a session."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(admin.app), base_url="http://room") as client:
        yield client


@asynccontextmanager
async def signed_in(admin: Administering, role: Literal["viewer", "operator"]) -> AsyncIterator[Browser]:
    """A browser after sign-in."""
    async with outside(admin) as client:
        answer = await client.post("/panel/login", data={"token": TOKENS[role]}, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/panel/")
        first = (await client.get("/panel/")).text
        found = re.search(rf'"{CSRF_HEADER}": "([0-9a-f]{{64}})"', first)
        assert found is not None
        yield Browser(client, found[1])
