"""Every route that an application serves, found by walking it: none can be forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute, Mount, Route


@dataclass(frozen=True, slots=True)
class Served:
    """A method at a path. ``described``: whether the OpenAPI document has it."""

    method: str
    path: str
    described: bool


def walk(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[Served]:
    """The routes, those of included routers and mounted applications too. Raises ``TypeError`` for an unknown kind."""
    for route in routes:
        included: Any = getattr(route, "original_router", None)
        if included is not None:
            context: Any = getattr(route, "include_context", None)
            yield from walk(included.routes, prefix + context.prefix)
        elif isinstance(route, Mount):
            yield from walk(_mounted(route.app), prefix + route.path)
        elif isinstance(route, Route):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield Served(method, prefix + route.path, route.include_in_schema)
        else:
            raise TypeError(f"what does {type(route).__name__} serve?")


def _mounted(app: Any) -> Sequence[BaseRoute]:
    """The routes of an application inside of middleware; files have none."""
    while app is not None and not hasattr(app, "routes"):
        app = getattr(app, "_app", None)
    return () if app is None else app.routes
