"""Somebody in front of the panel: a browser, its page, and what its console complained about."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import psycopg
from playwright.sync_api import Browser, Page
from psycopg.rows import dict_row

from room_testing.administering import TOKENS, ListedRoom

SHOTS = Path(__file__).resolve().parents[4] / ".cache" / "e2e"
Scheme = Literal["light", "dark"]


class Panel:
    """The panel, a room in it, and its database."""

    def __init__(self, url: str, dsn: str, room: ListedRoom, browser: Browser) -> None:
        self.url = url
        self.room = room
        self._dsn = dsn
        self._browser = browser

    def query(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Run one statement in its own transaction."""
        with psycopg.connect(self._dsn, row_factory=dict_row) as conn:
            cursor = conn.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def visitor(self, width: int = 1280, height: int = 860, scheme: Scheme = "light") -> Visitor:
        """Somebody in front of a new browser."""
        context = self._browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(20_000)
        return Visitor(self, context.new_page())


class Visitor:
    """A page of a browser, and everything its console complained about."""

    def __init__(self, panel: Panel, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self._panel = panel
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def go(self, path: str) -> None:
        """To a page of the panel."""
        self.page.goto(self._panel.url + path)
        self.page.wait_for_load_state("networkidle")

    def sign_in(self, role: str = "operator") -> None:
        """With a token of that role."""
        self.go("/")
        self.page.get_by_label("API token").fill(TOKENS[role])
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/panel/")
        self.page.wait_for_load_state("networkidle")

    def shoot(self, name: str) -> None:
        """A picture of the whole page, for a person to look at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)

    def close(self) -> None:
        """Go away; nothing may have been wrong."""
        self.page.context.close()
        assert self.errors == []
