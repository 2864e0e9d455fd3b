"""Every page as it looks: at a desk and on a phone, by day and by night."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from room_testing.browsing import Panel, Scheme

pytestmark = pytest.mark.integration

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
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
    "nothing": "/panel/deliveries?outcome=dead",
}


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
    for name, path in PAGES.items():
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
