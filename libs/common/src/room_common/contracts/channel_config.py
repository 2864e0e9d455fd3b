"""What ``instance_channels.config`` holds once decrypted: a channel's credentials and who may answer, as JSON.

Admin writes it, outbound and the scheduler read it. The associated data of the encryption are the table, the column
and the channel's id (:data:`CONFIG_TABLE`, :data:`CONFIG_COLUMN`), as for sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, field_validator

from room_common.domain.contacts import canonical, target_problem
from room_common.domain.signing import standard_key
from room_common.errors import Refused

ChannelType = Literal["local", "slack", "telegram", "whatsapp", "webhook"]
"""Channels a room may talk on."""

CONFIG_TABLE: Final = "instance_channels"
CONFIG_COLUMN: Final = "config"

CHANNEL_SECRETS: Final[Mapping[ChannelType, tuple[str, ...]]] = {
    "local": (),
    "slack": ("bot_token", "signing_secret"),
    "telegram": ("bot_token", "secret_token"),
    "whatsapp": ("account_sid", "auth_token"),
    "webhook": ("secret",),
}
"""The secrets that each channel needs, all of them."""

REPLYING: Final = frozenset({"local", "slack", "telegram", "whatsapp"})
"""Channels on which people can answer: only these have a URL."""

MAX_ALLOWED: Final = 200

Secret = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[\x21-\x7e]+$")]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    allow: tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...] = Field(
        (), max_length=MAX_ALLOWED, description="Senders whose replies are taken; none: everybody in the conversation."
    )


class LocalConfig(_Config):
    """The inbox of the person at this machine."""

    type: Literal["local"] = "local"


class SlackConfig(_Config):
    """A Slack app: the token it posts with, the secret its events are signed with."""

    type: Literal["slack"] = "slack"
    bot_token: Secret = Field(repr=False)
    signing_secret: Secret = Field(repr=False)


class TelegramConfig(_Config):
    """A Telegram bot: its token, and the secret that its webhook sends in a header."""

    type: Literal["telegram"] = "telegram"
    bot_token: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}:[A-Za-z0-9_-]{10,100}$")] = Field(repr=False)
    secret_token: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,256}$")] = Field(repr=False)


class WhatsAppConfig(_Config):
    """A WhatsApp sender at Twilio."""

    type: Literal["whatsapp"] = "whatsapp"
    account_sid: Annotated[str, StringConstraints(pattern=r"^AC[0-9a-fA-F]{32}$")] = Field(repr=False)
    auth_token: Secret = Field(repr=False)
    sender: str = Field(description="The number that messages come from.")

    @field_validator("sender")
    @classmethod
    def _number(cls, value: str) -> str:
        if target_problem("whatsapp", value) is not None:
            raise ValueError("write a phone number with its country, for example +14155238886")
        return canonical("whatsapp", value)


class WebhookConfig(_Config):
    """Any HTTP server that checks Standard Webhooks signatures."""

    type: Literal["webhook"] = "webhook"
    secret: Secret = Field(repr=False)

    @field_validator("secret")
    @classmethod
    def _standard(cls, value: str) -> str:
        if standard_key(value.encode()) is None:
            raise ValueError("write whsec_ and then base64, as Standard Webhooks define it")
        return value


ChannelConfig: TypeAlias = Annotated[
    LocalConfig | SlackConfig | TelegramConfig | WhatsAppConfig | WebhookConfig, Field(discriminator="type")
]

_ADAPTER: Final[TypeAdapter[ChannelConfig]] = TypeAdapter(ChannelConfig)


def make_channel_config(
    kind: ChannelType, secrets: Mapping[str, str], *, sender: str | None = None, allow: tuple[str, ...] = ()
) -> ChannelConfig:
    """The config of a channel. Raises pydantic's ``ValidationError``, which repeats no value."""
    fields: dict[str, object] = {**secrets, "type": kind, "allow": allow}
    return _ADAPTER.validate_python(fields if sender is None else {**fields, "sender": sender})


def encode_channel_config(config: ChannelConfig) -> bytes:
    """The JSON to encrypt."""
    return config.model_dump_json().encode()


def read_channel_config(kind: str, plain: bytes | None) -> ChannelConfig:
    """The config in decrypted JSON; fields of newer versions are ignored. ``local`` needs none.

    Raises ``Refused``: ``channel_not_configured`` when there is none, ``config_unreadable`` for what is no config of
    this type.
    """
    if plain is None:
        if kind == "local":
            return LocalConfig()
        raise Refused("channel_not_configured")
    try:
        config = _ADAPTER.validate_json(plain, extra="ignore")
    except ValidationError:
        raise Refused("config_unreadable") from None
    if config.type != kind:
        raise Refused("config_unreadable")
    return config


CHANNEL_TYPES: Final[tuple[ChannelType, ...]] = get_args(ChannelType)
