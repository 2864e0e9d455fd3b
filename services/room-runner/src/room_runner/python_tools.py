"""Tools that are Python functions: entry points of the group ``room.tools`` in any installed package.

A tool is a function with one parameter, annotated with a pydantic model. Its docstring is what the model is told, the
fields' descriptions too. It returns text or anything that JSON can say, and may be async; else it runs in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, get_type_hints

import structlog
from pydantic import BaseModel, TypeAdapter

from room_runner.domain.tools import TOOLS, BadCall, parsed, schema
from room_runner.outside import ToolFailed

GROUP: Final = "room.tools"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)
_log = structlog.get_logger(__name__)


class Threads:
    """Threads for functions that block. One that never returns holds its place, and no process from ending."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call it in a thread. When cancelled the thread goes on, and its place is free once it has ended."""
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            self._free.release()
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def work() -> None:
            result, problem = None, None
            try:
                result = function()
            except Exception as error:
                problem = error
            try:
                loop.call_soon_threadsafe(settle, result, problem)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        threading.Thread(target=work, name="room-tool", daemon=True).start()
        return await done


@dataclass(frozen=True, slots=True)
class PythonTool:
    """One function as a cycle calls it."""

    name: str
    description: str
    model: type[BaseModel] = field(repr=False)
    function: Callable[[Any], Any] = field(repr=False)
    threads: Threads = field(repr=False)
    seconds: float
    verified_only: bool = False

    @property
    def parameters(self) -> Mapping[str, Any]:
        return schema(self.model)

    def guarded(self) -> PythonTool:
        """The same, for verified events only."""
        return replace(self, verified_only=True)

    async def call(self, arguments: str) -> str:
        """As :class:`~room_runner.outside.OutsideTool`."""
        try:
            given = parsed(self.model, arguments)
        except BadCall as error:
            raise ToolFailed("arguments", str(error)) from None
        try:
            async with asyncio.timeout(self.seconds):
                if inspect.iscoroutinefunction(self.function):
                    called: Awaitable[Any] = self.function(given)
                    result = await called
                else:
                    result = await self.threads.run(lambda: self.function(given))
        except TimeoutError:
            raise ToolFailed(
                "timeout", f"no answer within {self.seconds:g} s: the call may or may not have happened"
            ) from None
        except Exception as error:
            _log.warning("tool raised", tool=self.name, error=type(error).__name__)
            raise ToolFailed("raised", f"the tool raised {type(error).__name__}") from error
        return result if isinstance(result, str) else _ANY.dump_json(result).decode()


def load(*, seconds: float, threads: int, found: Iterable[EntryPoint] | None = None) -> dict[str, PythonTool]:
    """Every usable entry point, by name. One that can't be used is logged and left out."""
    pool = Threads(threads)
    tools: dict[str, PythonTool] = {}
    for point in entry_points(group=GROUP) if found is None else found:
        try:
            tools[point.name] = _tool(point.name, point.load(), pool, seconds)
        except Exception as error:
            _log.error("tool left out", tool=point.name, error=type(error).__name__, reason=str(error)[:200])
    return tools


def _tool(name: str, function: Any, pool: Threads, seconds: float) -> PythonTool:
    if _NAME.fullmatch(name) is None or name in TOOLS or "__" in name:
        raise ValueError("a tool's name is lower-case letters, digits and single underscores, and none of Room's own")
    if not callable(function):
        raise TypeError("not a function")
    parameters = list(inspect.signature(function).parameters)
    model = get_type_hints(function).get(parameters[0]) if len(parameters) == 1 else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError("a tool has one parameter, annotated with a pydantic model")
    description = inspect.getdoc(function)
    if not description:
        raise ValueError("a tool needs a docstring: the model reads it")
    return PythonTool(name, description, model, function, pool, seconds)
