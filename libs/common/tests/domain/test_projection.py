"""What a model sees of GitHub's payloads."""

from __future__ import annotations

import copy

import pytest

from room_common.domain.jsonview import Json
from room_common.domain.projection import project

PUSH: Json = {
    "ref": "refs/heads/main",
    "url": "https://api.github.com/x",
    "html_url": "https://github.com/o/r",
    "compare_url": "https://api.github.com/compare",
    "sender": {"login": "octocat", "node_id": "MDQ6", "avatar_url": "a", "gravatar_id": "", "id": 1},
    "commits": [{"id": "abc", "url": "https://api.github.com/c", "author": {"name": "é", "events_url": "e"}}],
    "check": {"performed_via_github_app": {"id": 1}, "url_count": 2, "curl": "kept", "URL": "kept"},
    "clone_urls": ["kept"],
}

PROJECTED: Json = {
    "ref": "refs/heads/main",
    "html_url": "https://github.com/o/r",
    "sender": {"login": "octocat", "id": 1},
    "commits": [{"id": "abc", "author": {"name": "é"}}],
    "check": {"url_count": 2, "curl": "kept", "URL": "kept"},
    "clone_urls": ["kept"],
}


@pytest.mark.parametrize("source_type", ["github", "GitHub", "  GITHUB\n"])
def test_addresses_and_ids_go_at_every_depth(source_type: str) -> None:
    before = copy.deepcopy(PUSH)
    assert project(PUSH, source_type) == PROJECTED
    assert before == PUSH


@pytest.mark.parametrize("source_type", ["stripe", "hubspot", "generic", "github-enterprise", ""])
def test_other_types_pass_unchanged(source_type: str) -> None:
    assert project(PUSH, source_type) is PUSH


@pytest.mark.parametrize("view", [[], {}, None, "url", 1, [{"url": 1}, {"html_url": 2}]])
def test_any_view_can_be_projected(view: Json) -> None:
    assert project(view, "github") == ([{}, {"html_url": 2}] if isinstance(view, list) and view else view)
