"""Clocks, sleep, randomness and sockets of a blocking client."""

from __future__ import annotations

import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kreplica.security.sasl.credentials import SaslCredentials

Connect: TypeAlias = Callable[[str, int, float], socket.socket]
"""Connects to a host and port within a timeout in seconds, or raises ``OSError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingRuntime:
    """The non-deterministic functions that a client uses.

    :param clock: returns the monotonic time in seconds; only differences are used.
    :param wall_clock_ms: returns milliseconds since 1970, for the timestamps of records.
    :param sleep: waits for a number of seconds.
    :param random: source of randomness for jitter and partitioning.
    :param connect: opens sockets; ``tls_sockets`` returns such a function for TLS.
    :param wait_readable: waits, with a timeout in seconds, until a socket is readable; returns the readable sockets.
    :param sasl: the client's credentials; None if it does not authenticate.
    """

    clock: Callable[[], float]
    wall_clock_ms: Callable[[], int]
    sleep: Callable[[float], None]
    random: random.Random
    connect: Connect
    wait_readable: Callable[[Sequence[socket.socket], float], list[socket.socket]]
    sasl: SaslCredentials | None = None


def default_runtime(*, connect: Connect | None = None, sasl: SaslCredentials | None = None) -> BlockingRuntime:
    """Return the runtime that uses the operating system.

    :param connect: opens sockets; by default, plain TCP sockets.
    :param sasl: the client's credentials.
    """
    return BlockingRuntime(
        clock=time.monotonic,
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        sleep=time.sleep,
        random=random.Random(),
        connect=connect or tcp_socket,
        wait_readable=wait_readable,
        sasl=sasl,
    )


def tcp_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a connected socket with Nagle's algorithm disabled."""
    connected_socket = socket.create_connection((host, port), timeout_s)
    connected_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected_socket


def tls_sockets(context: ssl.SSLContext) -> Connect:
    """Return a function that opens TLS sockets; the context determines how certificates are verified."""

    def connect(host: str, port: int, timeout_s: float) -> socket.socket:
        tcp = tcp_socket(host, port, timeout_s)
        try:
            return context.wrap_socket(tcp, server_hostname=host)
        except BaseException:
            tcp.close()
            raise

    return connect


def wait_readable(sockets: Sequence[socket.socket], timeout_s: float) -> list[socket.socket]:
    """Wait until a socket is readable or closed, and return all such sockets.

    A TLS socket with buffered decrypted data is also returned, because its descriptor may never become readable.
    """
    ready: list[socket.socket] = [each for each in sockets if isinstance(each, ssl.SSLSocket) and each.pending()]
    if ready:
        return ready
    poll = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(max(0.0, timeout_s) * 1000)]
