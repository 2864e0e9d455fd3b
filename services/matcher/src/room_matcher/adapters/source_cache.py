"""The look-up of a token, remembered for a moment."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from room_common.coalescing import Coalescer
from room_common.domain.deliveries import Source
from room_common.faults import crash_point
from room_common.postgres import sources
from room_common.postgres.database import Database

_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """``fresh``: read for this question, not remembered from an earlier one."""

    source: Source | None
    fresh: bool


class SourceCache:
    """Sources by token digest, at most ``seconds`` old. A token that belongs to nothing is never remembered."""

    def __init__(self, database: Database, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[float, Source]] = OrderedDict()
        self._reads: Coalescer[bytes, Source | None] = Coalescer(self._read)

    async def find(self, token_sha256: bytes, *, fresh: bool = False) -> Found:
        """The source of a token; ``fresh`` asks the database in any case."""
        if not fresh:
            until, source = self._kept.get(token_sha256, (0.0, None))
            if source is not None and self._clock() < until:
                return Found(source, False)
        asked = self._clock()
        source = await self._reads.ask(token_sha256)
        self._kept.pop(token_sha256, None)
        if source is not None:
            self._kept[token_sha256] = (asked + self._seconds, source)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return Found(source, True)

    async def _read(self, tokens: Sequence[bytes]) -> Mapping[bytes, Source | None]:
        crash_point("matcher.before_source")
        async with self._database.transaction() as conn:
            found = await sources.by_tokens(conn, tokens)
        crash_point("matcher.after_source")
        return {token: found.get(token) for token in tokens}
