"""Every page as it looks: at a desk and on a phone, by day and by night."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from room_testing.browsing import Panel, Scheme

pytestmark = pytest.mark.integration

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
PAGES = {
    "overview": "/panel/",
    "services": "/panel/services",
    "room": "/panel/rooms/{slug}",
    "deliveries": "/panel/deliveries",
    "delivery": "/panel/deliveries/{delivery_id}",
    "backlog": "/panel/backlog",
    "event": "/panel/backlog/{event_id}",
    "inbox": "/panel/inbox",
    "cycles": "/panel/cycles",
    "cycle": "/panel/cycles/{cycle_id}",
    "messages": "/panel/messages",
    "activity": "/panel/activity",
    "charts": "/panel/charts",
    "chronicle": "/panel/rooms/{slug}/chronicle",
    "weeks": "/panel/rooms/{slug}/chronicle?by=week",
    "source": "/panel/sources/{source_id}",
    "nothing": "/panel/deliveries?outcome=dead",
}
FORMS = {
    "new": "/panel/new",
    "edit": "/panel/rooms/{slug}/edit",
    "channel": "/panel/rooms/{slug}/channel?type=whatsapp",
    "conversation": "/panel/rooms/{slug}/conversation",
    "providers": "/panel/rooms/{slug}/sources/new",
    "source-new": "/panel/rooms/{slug}/sources/new?type=generic",
    "source-edit": "/panel/sources/{source_id}/edit",
    "workshop": "/panel/sources/{source_id}/definitions/{definition_id}",
    "settings": "/panel/settings",
    "audit": "/panel/audit",
}
"""What only operators see."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_pages(panel: Panel, role: str, width: int, scheme: Scheme) -> None:
    visitor = panel.visitor(width, 860 if width > 500 else 740, scheme)
    visitor.go("/panel/login")
    found = {"login": _serious(visitor.page)}
    visitor.shoot(f"login-{scheme}-{width}")
    visitor.sign_in(role)
    room = {name: getattr(panel.room, name) for name in panel.room.__slots__}
    for name, path in (PAGES | FORMS if role == "operator" else PAGES).items():
        visitor.go(path.format(**room))
        if role == "operator":
            visitor.shoot(f"{name}-{scheme}-{width}")
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width, name
        found[name] = _serious(visitor.page)
    assert {name: problems for name, problems in found.items() if problems} == {}
    visitor.close()


def _serious(page: Any) -> list[str]:
    page.evaluate(AXE)
    violations = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    return [
        f"{violation['id']}: {node['target']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
