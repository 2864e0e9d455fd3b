"""What ``event_sources.config`` holds once decrypted: a source's secrets and switches, as JSON.

Admin writes it, the matcher reads it. The associated data of the encryption are the table, the column and the source's
id, so that a row's value can't be moved to another row: ``Keyring.encrypt(config.encode(), table=CONFIG_TABLE,
column=CONFIG_COLUMN, row_id=str(source_id))``. The encrypted copy of a URL's token has its own (:data:`TOKEN_TABLE`,
:data:`TOKEN_COLUMN`, row id: the token's SHA-256 in lower-case hex).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from room_common.contracts.envelope import carries_secret, carries_signature
from room_common.domain.credentials import AUTHORIZATION
from room_common.domain.signing import standard_key
from room_common.errors import Refused

SourceType = Literal["github", "gitlab", "stripe", "hubspot", "slack", "shopify", "standard", "generic"]
SOURCE_TYPES: Final[tuple[SourceType, ...]] = get_args(SourceType)

CONFIG_TABLE: Final = "event_sources"
CONFIG_COLUMN: Final = "config"
TOKEN_TABLE: Final = "source_tokens"  # noqa: S105 - a table's name
TOKEN_COLUMN: Final = "token_encrypted"  # noqa: S105 - a column's name

MAX_SECRETS: Final = 8
DEDUP_SECONDS_LIMIT: Final = 7 * 24 * 3600

HeaderName = Annotated[
    str, StringConstraints(strip_whitespace=True, to_lower=True, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")
]
Prefix = Annotated[str, StringConstraints(max_length=64, pattern=r"^[\x20-\x7e]*$")]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class HmacCheck(_Settings):
    """An HMAC of the received body in one request header, keyed with the source's secret as text."""

    header: HeaderName
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: Prefix = Field("", description="What stands before the signature in the header, for example `sha256=`.")

    @field_validator("header")
    @classmethod
    def _kept(cls, name: str) -> str:
        if not carries_signature(name):
            raise ValueError(f"{name!r} is not kept: the name of a signature's header contains 'signature' or 'hmac'")
        return name


class AuthKeyCheck(_Settings):
    """A request header that holds the secret itself. Only hashes of it travel and are compared.

    ``prefix`` None is ``'Bearer '`` for Authorization and nothing for other headers.
    """

    header: HeaderName = AUTHORIZATION
    prefix: Prefix | None = None

    @field_validator("header")
    @classmethod
    def _kept(cls, name: str) -> str:
        if not carries_secret(name):
            raise ValueError(
                f"{name!r} is not kept: a key is in Authorization or in a header whose name ends with -token, -key, "
                "-secret or apikey (of headers with another use, like Idempotency-Key, none counts)"
            )
        return name

    @property
    def text_before(self) -> str:
        """What stands before the secret."""
        if self.prefix is not None:
            return self.prefix
        return "Bearer " if self.header == AUTHORIZATION else ""


class Verify(_Settings):
    """How deliveries of a generic source are verified: one of the two."""

    hmac: HmacCheck | None = None
    auth_key: AuthKeyCheck | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.hmac is None) == (self.auth_key is None):
            raise ValueError("write either hmac: {header: ...} or auth_key: {header: ...}")
        return self


class SourceConfig(_Settings):
    """A source's secrets and switches. Several secrets are valid at once, so that one can be rotated.

    ``verify`` is for generic sources; the other types have their provider's scheme. ``split`` None leaves it to the
    source type whether a top-level array is one event per item (hubspot: yes). ``dedup_seconds`` None is 10 minutes;
    it applies to deliveries without an id of their own, 0 drops none of them.
    """

    secrets: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), repr=False, max_length=MAX_SECRETS)
    verify: Verify | None = None
    split: bool | None = None
    dedup_seconds: int | None = Field(None, ge=0, le=DEDUP_SECONDS_LIMIT)

    def encode(self) -> bytes:
        """The JSON to encrypt."""
        return self.model_dump_json(exclude_defaults=True).encode()


def read_config(plain: bytes) -> SourceConfig:
    """The config in decrypted JSON; fields of newer versions are ignored. Raises ``Refused('config_unreadable')``."""
    try:
        return SourceConfig.model_validate_json(plain, extra="ignore")
    except ValidationError:
        raise Refused("config_unreadable") from None


def verification_problem(source_type: SourceType, verify: Verify | None, secrets: int) -> str | None:
    """What is wrong with a source of this type, ``verify`` and so many secrets, in words for whoever wrote it."""
    if source_type != "generic":
        if verify is None:
            return None
        return f"sources of type {source_type} have their provider's signature; verify is for sources of type generic"
    if secrets and verify is None:
        return "say how a generic source is verified: verify: {hmac: {header: ...}} or verify: {auth_key: {}}"
    if verify is not None and not secrets:
        return "verify needs at least one secret to verify with; add secrets: [{env: NAME}]"
    return None


def secret_problem(source_type: SourceType, secret: str) -> str | None:
    """Why no delivery of this type could ever be verified with this secret. Never repeats the secret."""
    if source_type == "standard" and standard_key(secret.encode()) is None:
        return "is not a Standard Webhooks secret: whsec_ and then base64"
    if secret != secret.strip() or not secret.isprintable():
        return "begins or ends with space, or contains a control character"
    return None


def unusable_secrets(source_type: SourceType, secrets: Sequence[str]) -> list[tuple[int, str]]:
    """Positions of the secrets that can't be used, and why."""
    found = ((number, secret_problem(source_type, secret)) for number, secret in enumerate(secrets))
    return [(number, problem) for number, problem in found if problem is not None]
