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
    """``read_at``: when it was asked for at the database, in Unix seconds."""

    source: Source | None
    read_at: float


class SourceCache:
    """Sources by token digest, at most ``seconds`` old. A token that belongs to nothing is never remembered."""

    def __init__(
        self,
        database: Database,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._clock = clock
        self._now = now
        self._kept: OrderedDict[bytes, tuple[float, Found]] = OrderedDict()
        self._reads: Coalescer[bytes, Source | None] = Coalescer(self._read)

    async def find(self, token_sha256: bytes, *, since: float = 0.0) -> Found:
        """The source of a token, read after ``since`` (Unix seconds)."""
        until, known = self._kept.get(token_sha256, (0.0, None))
        if known is not None and known.read_at > since and self._clock() < until:
            return known
        asked, at = self._clock(), self._now()
        found = Found(await self._reads.ask(token_sha256), at)
        self._kept.pop(token_sha256, None)
        if found.source is not None:
            self._kept[token_sha256] = (asked + self._seconds, found)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    async def _read(self, tokens: Sequence[bytes]) -> Mapping[bytes, Source | None]:
        crash_point("matcher.before_source")
        async with self._database.transaction() as conn:
            found = await sources.by_tokens(conn, tokens)
        crash_point("matcher.after_source")
        return {token: found.get(token) for token in tokens}
