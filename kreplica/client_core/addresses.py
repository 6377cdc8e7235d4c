"""Where a client begins: ``HOST:PORT,HOST:PORT``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PORT_MAX = 65535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(bootstrap: str | Iterable[tuple[str, int]]) -> tuple[Address, ...]:
    """Addresses from what users write, ``kafka-1:9092,[::1]:9093``, or from pairs.

    :raise ValueError: there is none, or one that is not ``HOST:PORT``.
    """
    if not isinstance(bootstrap, str):
        found = tuple(Address(host, port) for host, port in bootstrap)
    else:
        found = tuple(_parse(part.strip()) for part in bootstrap.split(",") if part.strip())
    if not found:
        raise ValueError("no broker to begin with: HOST:PORT,HOST:PORT... is expected")
    return found


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"{text!r}: HOST:PORT is expected, as in 127.0.0.1:9092")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
