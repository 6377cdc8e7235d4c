"""Broker addresses and the bootstrap list ``HOST:PORT,HOST:PORT``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PORT_MAX = 65535


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(bootstrap: str | Iterable[tuple[str, int]]) -> tuple[Address, ...]:
    """Parse bootstrap addresses: ``kafka-1:9092,[::1]:9093``, or pairs of host and port.

    :raise ValueError: the list is empty, or an entry is not ``HOST:PORT``.
    """
    if not isinstance(bootstrap, str):
        found = tuple(Address(host, port) for host, port in bootstrap)
    else:
        found = tuple(_parse(part.strip()) for part in bootstrap.split(",") if part.strip())
    if not found:
        raise ValueError("no bootstrap brokers were given; expected HOST:PORT,HOST:PORT")
    return found


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"{text!r}: HOST:PORT is expected, for example 127.0.0.1:9092")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
