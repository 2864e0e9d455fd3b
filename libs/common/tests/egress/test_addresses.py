"""Which addresses may be connected to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.egress.addresses import permitted


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses(address: str) -> None:
    assert permitted([address], ())
    assert not permitted([address, "10.0.0.1"], ()), "one bad address is enough"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.0.1", "198.18.0.1", "192.0.2.1", "203.0.113.5", "224.0.0.1", "239.255.255.250", "240.0.0.1",
        "255.255.255.255",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1",
        "feff::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "", "localhost", "1.2.3", "0x7f.0.0.1",
    ],
)  # fmt: skip
def test_everything_else(address: str) -> None:
    assert not permitted([address], ())


def test_nothing_is_not_enough() -> None:
    assert not permitted([], ())


def test_allowed_networks() -> None:
    allowed = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert permitted(["10.1.2.3", "fd00::1", "1.1.1.1"], allowed)
    assert not permitted(["127.0.0.1"], allowed)
    assert not permitted(["11.0.0.1", "192.168.0.1"], allowed)


@given(st.ip_addresses() | st.text())
def test_any_text_has_an_answer(address: IPv4Address | IPv6Address | str) -> None:
    assert permitted([str(address)], ()) in (True, False)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_what_it_is(address: IPv4Address) -> None:
    if not permitted([str(address)], ()):
        assert not permitted([f"::ffff:{address}"], ())
        assert not permitted([str(IPv6Address(int(IPv6Address("64:ff9b::")) + int(address)))], ())
