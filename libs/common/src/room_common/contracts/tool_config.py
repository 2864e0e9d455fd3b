"""What ``instance_tools.config`` holds once decrypted: where a server of tools is, and its credential, as JSON.

Admin writes it, the runner reads it. The associated data of the encryption are :data:`CONFIG_TABLE`,
:data:`CONFIG_COLUMN` and the row's id.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from room_common.contracts.source_config import HeaderName, Prefix
from room_common.errors import Refused

ToolKind = Literal["mcp", "python"]

CONFIG_TABLE: Final = "instance_tools"
CONFIG_COLUMN: Final = "config"
SEPARATOR: Final = "__"
MAX_FUNCTION_NAME: Final = 64
"""What providers of models take as the name of a function."""

ServerName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*$", max_length=40)]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]

_URL = re.compile(r"https?://[^\s/@?#]+(?::\d{1,5})?(?:/[^\s#]*)?", re.ASCII)


class ToolConfig(BaseModel):
    """A server of tools. ``secret`` goes into ``header`` behind ``prefix``; None: no credential."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str = Field(repr=False)
    header: HeaderName = "authorization"
    prefix: Prefix = "Bearer "
    secret: str | None = Field(None, repr=False)

    def encode(self) -> bytes:
        """The JSON to encrypt."""
        return self.model_dump_json(exclude_defaults=True).encode()


def read_tool_config(plain: bytes) -> ToolConfig:
    """The config in decrypted JSON; fields of newer versions are ignored. Raises ``Refused('config_unreadable')``."""
    try:
        return ToolConfig.model_validate_json(plain, extra="ignore")
    except ValidationError:
        raise Refused("config_unreadable") from None


def url_problem(url: str) -> str | None:
    """Why a server can't have this URL, None when it can. Where it may lead is the egress rules' business."""
    if _URL.fullmatch(url) is None or len(url) > 2000:
        return "write the URL of the server, like https://tools.example.com/mcp, without user, password or fragment"
    return None


def function_name(server: str, tool: str) -> str:
    """What a model calls a server's tool."""
    return f"{server}{SEPARATOR}{tool}"
