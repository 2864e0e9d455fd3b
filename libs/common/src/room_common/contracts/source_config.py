"""What ``event_sources.config`` holds once decrypted: a source's secrets and switches, as JSON.

Admin writes it, the matcher reads it. The associated data of the encryption are the table, the column and the source's
id, so that a row's value can't be moved to another row: ``Keyring.encrypt(config.encode(), table=CONFIG_TABLE,
column=CONFIG_COLUMN, row_id=str(source_id))``. The encrypted copy of a URL's token has its own (:data:`TOKEN_TABLE`,
:data:`TOKEN_COLUMN`, row id: the token's SHA-256 in lower-case hex).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from room_common.errors import Refused

SourceType = Literal["github", "stripe", "hubspot", "generic"]
SOURCE_TYPES: Final[tuple[SourceType, ...]] = get_args(SourceType)

SIGNING_TYPES: Final[frozenset[str]] = frozenset({"github", "stripe", "hubspot"})
"""Source types whose deliveries can be verified, and which may therefore have secrets."""

CONFIG_TABLE: Final = "event_sources"
CONFIG_COLUMN: Final = "config"
TOKEN_TABLE: Final = "source_tokens"  # noqa: S105 - a table's name
TOKEN_COLUMN: Final = "token_encrypted"  # noqa: S105 - a column's name

MAX_SECRETS: Final = 8
DEDUP_SECONDS_LIMIT: Final = 7 * 24 * 3600


class SourceConfig(BaseModel):
    """A source's secrets and switches. Several secrets are valid at once, so that one can be rotated.

    ``split`` None leaves it to the source type whether a top-level array is one event per item (hubspot: yes).
    ``dedup_seconds`` None is 10 minutes; it applies to deliveries without an id of their own, 0 drops none of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    secrets: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), repr=False, max_length=MAX_SECRETS)
    split: bool | None = None
    dedup_seconds: int | None = Field(None, ge=0, le=DEDUP_SECONDS_LIMIT)

    def encode(self) -> bytes:
        """The JSON to encrypt."""
        return self.model_dump_json().encode()


def read_config(plain: bytes) -> SourceConfig:
    """The config in decrypted JSON; fields of newer versions are ignored. Raises ``Refused('config_unreadable')``."""
    try:
        return SourceConfig.model_validate_json(plain, extra="ignore")
    except ValidationError:
        raise Refused("config_unreadable") from None
