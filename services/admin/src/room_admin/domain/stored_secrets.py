"""References to secrets that are stored already (``stored: 1``): the values that they stand for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from room_admin.domain.difference import CurrentRoom
from room_common.contracts.room_document import RoomDocument, SecretReference
from room_common.errors import Refused


@dataclass(frozen=True, slots=True)
class Secrets:
    """The values that a document's references stand for: by source, the channel's by their names, by tool.

    As given by a caller, those of ``stored`` references are left out; :func:`complete` puts them in.
    """

    sources: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    channel: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: Mapping[str, str] = field(default_factory=dict, repr=False)


class NotStored(Refused):
    """A reference to a stored secret that is not there. ``place`` is where it stands in the document."""

    def __init__(self, place: tuple[str | int, ...]) -> None:
        super().__init__(
            "not_stored",
            "no such secret is stored for this, or it can't be decrypted: write env: NAME or file: PATH",
        )
        self.place = place


def complete(document: RoomDocument, given: Secrets, current: CurrentRoom | None) -> Secrets:
    """All values, those of ``stored`` references from ``current``. Raises :class:`NotStored`."""
    return Secrets(
        dict(_sources(document, given, current)), _channel(document, given, current), _tools(document, given, current)
    )


def _sources(
    document: RoomDocument, given: Secrets, current: CurrentRoom | None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for position, source in enumerate(document.sources):
        before = current.sources.get(source.name) if current is not None else None
        known = (before.secrets or ()) if before is not None else ()
        new = iter(given.sources.get(source.name, ()))
        values = tuple(
            next(new)
            if reference.stored is None
            else _known(known, reference, ("sources", position, "secrets", number))
            for number, reference in enumerate(source.secrets)
        )
        if values:
            yield source.name, values


def _channel(document: RoomDocument, given: Secrets, current: CurrentRoom | None) -> dict[str, str]:
    channel, values = document.channel, dict(given.channel)
    before = current.channel if current is not None else None
    for name, reference in (channel.secrets if channel is not None else {}).items():
        if reference.stored is not None:
            same = before is not None and channel is not None and before.type == channel.type
            stored = getattr(before.config, name, None) if before is not None and same else None
            values[name] = _known(() if stored is None else (stored,), reference, ("channel", "secrets", name))
    return values


def _tools(document: RoomDocument, given: Secrets, current: CurrentRoom | None) -> dict[str, str]:
    values = dict(given.tools)
    for position, tool in enumerate(document.tools):
        if tool.secret is not None and tool.secret.stored is not None:
            before = current.tools.get(tool.name) if current is not None else None
            config = before.config if before is not None else None
            # A stored credential stays with its server: pointed at another one, anybody could read it there.
            stored = config.secret if config is not None and config.url == tool.url else None
            values[tool.name] = _known(() if stored is None else (stored,), tool.secret, ("tools", position, "secret"))
    return values


def _known(known: Sequence[str], reference: SecretReference, place: tuple[str | int, ...]) -> str:
    if reference.stored is None or reference.stored > len(known):
        raise NotStored(place)
    return known[reference.stored - 1]
