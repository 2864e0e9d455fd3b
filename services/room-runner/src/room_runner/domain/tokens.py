"""How large a prompt is before a provider has counted it: bytes / 3, corrected by what providers reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

BYTES_PER_TOKEN: Final = 3
_LEAST, _MOST = 0.2, 5.0


def text_tokens(text: str) -> int:
    """The estimate for a text, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def prompt_tokens(messages: Iterable[Mapping[str, object]]) -> int:
    """The estimate for a conversation as it goes over the wire."""
    return -(-sum(len(orjson.dumps(message)) for message in messages) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Estimator:
    """Corrects estimates by the last reported count; 1 until there is one."""

    ratio: float = 1.0

    def estimate(self, raw: int) -> int:
        """The corrected estimate."""
        return round(raw * self.ratio)

    def learned(self, raw: int, reported: int) -> Estimator:
        """After a provider reported ``reported`` tokens for a prompt estimated at ``raw``; 0 is no report."""
        if raw <= 0 or reported <= 0:
            return self
        return Estimator(min(max(reported / raw, _LEAST), _MOST))
