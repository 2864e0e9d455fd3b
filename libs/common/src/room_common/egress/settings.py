"""Settings of requests to the outside."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from pydantic import Field

from room_common.settings import Section


class EgressSettings(Section):
    """Where outbound webhooks and tool servers may be."""

    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        (), description="Networks (CIDR) that may be reached although they are not globally routable."
    )
    allow_http: bool = Field(False, description="Whether plain http is allowed beside https.")
    connect_seconds: float = Field(5.0, gt=0, le=60, description="Seconds to resolve a name, and again to connect.")
    read_seconds: float = Field(15.0, gt=0, le=300, description="Seconds without a byte before an answer is given up.")
    max_answer_bytes: int = Field(1024 * 1024, ge=1024, description="Bytes of an answer's body at most.")
