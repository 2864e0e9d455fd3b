"""Which addresses may be connected to. Pure: names are resolved elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")


def permitted(addresses: Iterable[str], allowed: Sequence[Network]) -> bool:
    """Whether there is an address, and every one is globally routable or in an allowed network.

    All of them: a name that points here and there could be answered differently each time. Total over any text.
    """
    found = list(addresses)
    return bool(found) and all(_permitted(text, allowed) for text in found)


def _permitted(text: str, allowed: Sequence[Network]) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if any(address in network for network in allowed if network.version == address.version):
        return True
    return all(_routable(one) for one in (address, *_inner(address)))


def _routable(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:  # deprecated, "global" to Python, routed by some
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _inner(address: Address) -> Iterable[IPv4Address]:
    """The IPv4 addresses that an IPv6 address is a way to."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _TRANSLATED or address in _COMPATIBLE:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
