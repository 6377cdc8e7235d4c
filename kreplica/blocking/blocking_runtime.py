"""The seams: all that is not deterministic enters the client through one ``BlockingRuntime``."""

from __future__ import annotations

import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

SocketMaker: TypeAlias = Callable[[str, int, float], socket.socket]
"""Connects to a host and port within so many seconds, or raises ``OSError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingRuntime:
    """What a client may not make for itself.

    :param clock: monotonic seconds; only differences mean anything.
    :param wall_clock_ms: milliseconds since 1970: stamps records, measures nothing.
    :param sleep: lets so many seconds pass.
    :param random: for jitter, and for records without a key.
    :param connect: makes sockets; ``tls_sockets`` gives one for TLS.
    :param wait_readable: waits until one of some sockets has something to read, at most so many seconds; gives those.
    """

    clock: Callable[[], float]
    wall_clock_ms: Callable[[], int]
    sleep: Callable[[float], None]
    random: random.Random
    connect: SocketMaker
    wait_readable: Callable[[Sequence[socket.socket], float], list[socket.socket]]


def default_runtime(*, connect: SocketMaker | None = None) -> BlockingRuntime:
    """The machine's own.

    :param connect: makes sockets; plain TCP unless given.
    """
    return BlockingRuntime(
        clock=time.monotonic,
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        sleep=time.sleep,
        random=random.Random(),
        connect=connect or tcp_socket,
        wait_readable=wait_readable,
    )


def tcp_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket that sends at once what it is given."""
    made = socket.create_connection((host, port), timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


def tls_sockets(context: ssl.SSLContext) -> SocketMaker:
    """Makes sockets that speak TLS, and check the host's name as the context says."""

    def connect(host: str, port: int, timeout_s: float) -> socket.socket:
        plain = tcp_socket(host, port, timeout_s)
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    return connect


def wait_readable(sockets: Sequence[socket.socket], timeout_s: float) -> list[socket.socket]:
    """Those that have something to read, or have ended; waits for the first at most so long.

    What TLS has decrypted already counts: no more bytes may ever arrive for it.
    """
    ready: list[socket.socket] = [each for each in sockets if isinstance(each, ssl.SSLSocket) and each.pending()]
    if ready:
        return ready
    poll = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(max(0.0, timeout_s) * 1000)]
