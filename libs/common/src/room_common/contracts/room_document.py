"""The room document: what ``room apply -f room.yaml`` makes an instance match (design, HTTP from outside).

The file holds references to secrets, never secrets. Whoever reads the file resolves them and hands the values to the
API beside the document.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from room_common.contracts.channel_config import CHANNEL_SECRETS, MAX_ALLOWED, REPLYING, ChannelType
from room_common.contracts.source_config import (
    DEDUP_SECONDS_LIMIT,
    MAX_SECRETS,
    HeaderName,
    Prefix,
    SourceType,
    Verify,
    verification_problem,
)
from room_common.contracts.tool_config import (
    MAX_FUNCTION_NAME,
    ServerName,
    ToolKind,
    ToolName,
    function_name,
    url_problem,
)
from room_common.domain.contacts import target_problem


def _without_controls(text: str) -> str:
    if any(unicodedata.category(char) == "Cc" for char in text):
        raise ValueError("a name is one line, without control characters")
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("text may not contain the character NUL")
    return text


Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_without_controls)]
Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120), AfterValidator(_without_controls)
]
Prose = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000), AfterValidator(_without_nul)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Document(BaseModel):
    """Base of the document's parts: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SecretReference(Document):
    """Where a secret is read from: an environment variable or a file, of the machine that runs ``room apply``; or the
    secret that is stored already stays, which is how an export refers to it.
    """

    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    file: Annotated[str, StringConstraints(min_length=1)] | None = None
    stored: int | None = Field(
        None, ge=1, le=MAX_SECRETS, description="Which of the secrets stored now, from 1. Only a source has several."
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if sum(value is not None for value in (self.env, self.file, self.stored)) != 1:
            raise ValueError("write either env: NAME or file: PATH, or stored: 1 for the one that is stored now")
        return self


class DefinitionDocument(Document):
    """One event definition: what to match in plain language, and what to do then."""

    name: Name
    priority: int = Field(100, ge=0, le=1_000_000, description="Lower is asked first.")
    match: Annotated[Prose, StringConstraints(min_length=1)] = Field(description="What to match, in plain language.")
    interpret: Prose = Field("", description="What the agent should do with a matched event.")
    cooldown_seconds: int = Field(0, ge=0, le=604_800)
    enabled: bool = True


class SourceDocument(Document):
    """One webhook URL and its definitions."""

    name: Name
    type: SourceType
    enabled: bool = True
    secrets: tuple[SecretReference, ...] = Field((), max_length=MAX_SECRETS)
    verify: Verify | None = Field(None, description="How a generic source is verified; others have their own way.")
    split: bool | None = Field(
        None, description="Whether each element of a top-level array is an event; hubspot: yes, others: no."
    )
    dedup_seconds: int | None = Field(
        None, ge=0, le=DEDUP_SECONDS_LIMIT, description="How long equal bodies without an id are duplicates; 600."
    )
    definitions: tuple[DefinitionDocument, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_doubles("definition", self.definitions)
        problem = verification_problem(self.type, self.verify, len(self.secrets))
        if problem is not None:
            raise ValueError(problem)
        return self


class ChannelDocument(Document):
    """Whom the agent talks to."""

    type: ChannelType
    target: Annotated[Line, StringConstraints(max_length=2000)] = Field(
        description="Whom messages go to: a name, a Slack or Telegram id, a phone number, a URL."
    )
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    sender: str | None = Field(None, max_length=40, description="whatsapp: the number that messages come from.")
    allow: tuple[Annotated[Line, StringConstraints(max_length=200)], ...] = Field(
        (), max_length=MAX_ALLOWED, description="Senders whose replies are taken; none: everybody in the conversation."
    )
    secrets: dict[str, SecretReference] = Field(
        default_factory=dict, description="The credentials of the channel, by name."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problem = target_problem(self.type, self.target) or self._problem()
        if problem is not None:
            raise ValueError(problem)
        return self

    def _problem(self) -> str | None:
        needed = CHANNEL_SECRETS[self.type]
        if set(self.secrets) != set(needed):
            wanted = ", ".join(needed) if needed else "none"
            return f"a channel of type {self.type} needs these secrets and no others: {wanted}"
        if (self.sender is not None) != (self.type == "whatsapp"):
            return "sender, the number that messages come from, is for whatsapp, and needed there"
        if self.sender is not None and target_problem("whatsapp", self.sender) is not None:
            return "sender is a phone number with its country, for example +14155238886"
        if self.allow and self.type not in REPLYING:
            return f"nobody can reply on a channel of type {self.type}: leave allow out"
        return None


class ToolDocument(Document):
    """What the agent may use beside its own tools: a server that speaks MCP, or an installed Python function."""

    name: ServerName = Field(description="mcp: what its tools' names begin with; python: the name of the entry point.")
    type: ToolKind
    enabled: bool = True
    url: str | None = Field(None, description="mcp: where the server is.")
    allow: tuple[ToolName, ...] = Field(
        (), max_length=100, description="mcp: the tools that may be called; none: none of them."
    )
    verified_only: bool | tuple[ToolName, ...] = Field(
        False, description="Tools that are there for verified events only: true for all, or a list of an mcp's."
    )
    secret: SecretReference | None = Field(None, description="mcp: the credential that the server wants.")
    header: HeaderName = Field("authorization", description="mcp: the header that carries it.")
    prefix: Prefix = Field("Bearer ", description="mcp: what stands before it there.")

    @property
    def allowed(self) -> tuple[str, ...]:
        """The tools that may be called, in order."""
        return (self.name,) if self.type == "python" else tuple(sorted(set(self.allow)))

    @property
    def guarded(self) -> tuple[str, ...]:
        """Those of them that need verified events."""
        if isinstance(self.verified_only, bool):
            return self.allowed if self.verified_only else ()
        return tuple(sorted(set(self.verified_only)))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problem = self._problem()
        if problem is not None:
            raise ValueError(problem)
        return self

    def _problem(self) -> str | None:
        if self.type == "python":
            if self.url is not None or self.allow or self.secret is not None:
                return "url, allow and secret are for tools of type mcp; a function of type python has a name only"
            return None if isinstance(self.verified_only, bool) else "verified_only of a function is true or false"
        if self.url is None:
            return "a tool of type mcp needs the url of its server"
        if (problem := url_problem(self.url)) is not None:
            return problem
        if unknown := set(self.guarded) - set(self.allowed):
            return f"verified_only names tools that allow does not: {', '.join(sorted(unknown))}"
        long = next((name for name in self.allow if len(function_name(self.name, name)) > MAX_FUNCTION_NAME), None)
        if long is not None:
            return f"the name {function_name(self.name, long)} has more than {MAX_FUNCTION_NAME} characters"
        return None


class RoomDocument(Document):
    """A whole room."""

    version: Literal[1]
    name: Name
    slug: Slug
    mandate: Prose = ""
    timezone: str = "UTC"
    enabled: bool = True
    channel: ChannelDocument | None = None
    sources: tuple[SourceDocument, ...] = ()
    tools: tuple[ToolDocument, ...] = Field((), max_length=50)

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("write a name of the IANA time zone database, for example Europe/Rome") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_doubles("source", self.sources)
        _refuse_doubles("tool", self.tools)
        return self


def _refuse_doubles(
    kind: Literal["source", "definition", "tool"],
    parts: Sequence[SourceDocument | DefinitionDocument | ToolDocument],
) -> None:
    """The error tells by ``index`` which part comes second, and by ``first`` which has the name already."""
    seen: dict[str, int] = {}
    for index, part in enumerate(parts):
        first = seen.setdefault(part.name, index)
        if first != index:
            raise PydanticCustomError(
                "double_name",
                "there is another {kind} named '{name}'; {kind}s need different names",
                {"kind": kind, "name": part.name, "index": index, "first": first},
            )
