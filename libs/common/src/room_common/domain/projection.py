"""What a model sees of a payload: less than what is stored, never more.

Only GitHub's payloads are projected: most of their size is API addresses that say nothing to a reader.
"""

from __future__ import annotations

from room_common.domain.jsonview import Json

_GITHUB_DROPPED = frozenset({"url", "node_id", "gravatar_id", "avatar_url", "performed_via_github_app"})
_GITHUB_KEPT = "html_url"


def project(view: Json, source_type: str) -> Json:
    """The part of ``view`` that a model sees; ``view`` itself is not changed, other source types pass as they are."""
    if source_type.strip().lower() == "github":
        return _without_github_addresses(view)
    return view


def _without_github_addresses(view: Json) -> Json:
    if isinstance(view, dict):
        return {key: _without_github_addresses(value) for key, value in view.items() if not _is_github_address(key)}
    if isinstance(view, list):
        return [_without_github_addresses(value) for value in view]
    return view


def _is_github_address(key: str) -> bool:
    return key in _GITHUB_DROPPED or (key.endswith("_url") and key != _GITHUB_KEPT)
