"""Listener settings: lists of ``NAME://host:port``, and the security protocol of each name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import combinations

from kreplica.model import Endpoint

_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._%-]*)):([0-9]{1,5})", re.ASCII)
_UNROUTABLE = {"0.0.0.0", "::"}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def parse_protocols(text: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL,NAME:PROTOCOL``; return the protocols by listener name, in upper case.

    :raise ValueError: the text is malformed, a name is repeated, or a protocol is unknown.
    """
    protocols: dict[str, str] = {}
    for item in _items(text):
        name, colon, protocol = (part.strip().upper() for part in item.rpartition(":"))
        if not (name and colon):
            raise ValueError(f"{item!r} is not NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ValueError(f"{item!r} has an unknown protocol; the protocols are {', '.join(PROTOCOLS)}")
        if name in protocols:
            raise ValueError(f"the name {name} is listed twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Parse ``NAME://host:port,NAME://host:port`` into endpoints with distinct names.

    An empty host means all interfaces; port 0 lets the system choose.

    :param protocols: security protocols by listener name.
    :raise ValueError: the text is malformed, a name is repeated, or the protocol of a name is missing or unsupported.
    """
    endpoints: list[Endpoint] = []
    for item in _items(text):
        endpoint = _parse_endpoint(item, protocols)
        if any(other.listener == endpoint.listener for other in endpoints):
            raise ValueError(f"the listener {endpoint.listener} is listed twice; listener names must be unique")
        endpoints.append(endpoint)
    if not endpoints:
        raise ValueError("there must be at least one listener, such as PLAINTEXT://127.0.0.1:9092")
    return tuple(endpoints)


def check_ports(endpoints: Sequence[Endpoint]) -> None:
    """Check that listeners have different ports, except one IPv4 and one IPv6 listener (KIP-797).

    :raise ValueError: two listeners have the same port.
    """
    for first, second in combinations(endpoints, 2):
        if first.port == second.port != 0 and {_version(first.host), _version(second.host)} != {4, 6}:
            raise ValueError(f"{first} and {second} have the same port; listeners need different ports")


def check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    """Check that clients can use each advertised address, and that it belongs to a listener.

    :raise ValueError: an address is unroutable or has no listener.
    """
    names = [endpoint.listener for endpoint in listeners]
    for endpoint in advertised:
        if endpoint.host in _UNROUTABLE:
            raise ValueError(
                f"{endpoint} cannot be advertised: no client can connect to {endpoint.host}; "
                "set advertised.listeners to a host that clients can reach"
            )
        if endpoint.listener not in names:
            known = ", ".join(names)
            raise ValueError(f"{endpoint} is advertised, but there is no listener {endpoint.listener}, only {known}")


def _items(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _parse_endpoint(item: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(item)
    if match is None:
        raise ValueError(f"{item!r} is not NAME://host:port (an IPv6 address needs brackets)")
    name, address, host, port = match.groups()
    name = name.upper()
    if int(port) > 65535:
        raise ValueError(f"{item!r}: the port is not between 0 and 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(f"{item!r}: listener.security.protocol.map has no protocol for {name}")
    return Endpoint(name, address or host, int(port), protocol)


def _version(host: str) -> int | None:
    """Return the IP version of an address, 4 or 6; None for a host name."""
    for version, address in ((4, IPv4Address), (6, IPv6Address)):
        try:
            address(host)
        except AddressValueError:
            continue
        return version
    return None
