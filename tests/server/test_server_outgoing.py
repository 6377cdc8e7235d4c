"""Short file ranges are copied and sent together with the data around them; longer ones are sent with sendfile."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kreplica.runtime.disk import File, FileRange
from kreplica.runtime.os_disk import OsDisk
from kreplica.server.transport.outgoing import SMALL_BYTES_MAX, OutgoingQueue

DATA = os.urandom(3 * SMALL_BYTES_MAX)


class Counting(socket.socket):
    """Socket that counts the sends."""

    sends = 0

    def send(self, *arguments: Any) -> int:
        self.sends += 1
        return super().send(*arguments)


class Warm:
    """Read-ahead for files that are entirely in the page cache."""

    is_loading = False
    asked = 0

    def cached_bytes(self, file: File, position: int, size: int) -> int:
        self.asked += 1
        return size

    def reset(self) -> None:
        pass

    def report_unreadable(self, file: File, error: OSError) -> None:
        raise error


@pytest.fixture
def file(tmp_path: Path) -> File:
    (tmp_path / "log").write_bytes(DATA)
    return OsDisk().open(str(tmp_path / "log"))


@pytest.fixture
def ends() -> Any:
    one, other = socket.socketpair()
    with Counting(fileno=one.detach()) as sender, other:
        sender.setblocking(False)
        other.setblocking(False)
        yield sender, other


def test_short_ranges_leave_with_their_headers(file: File, ends: Any) -> None:
    """Several short ranges and their headers are sent with one system call."""
    read_ahead: Any = Warm()
    outgoing = OutgoingQueue(ends[0], read_ahead, "the test")
    outgoing.extend([b"first", FileRange(file, 7, 100), b"second", FileRange(file, 1, SMALL_BYTES_MAX), b"end"])
    expected = b"first" + DATA[7:107] + b"second" + DATA[1 : 1 + SMALL_BYTES_MAX] + b"end"
    assert outgoing.send() == len(expected)
    assert not outgoing
    assert ends[1].recv(1 << 20) == expected
    assert (ends[0].sends, read_ahead.asked) == (1, 0)


def test_longer_ranges_use_sendfile(file: File, ends: Any) -> None:
    """Long ranges and the data around them are sent in order."""
    read_ahead: Any = Warm()
    outgoing = OutgoingQueue(ends[0], read_ahead, "the test")
    outgoing.extend([b"head", FileRange(file, 0, SMALL_BYTES_MAX + 1), b"next", FileRange(file, 5, 10)])
    outgoing.send()
    assert not outgoing
    assert ends[1].recv(1 << 20) == b"head" + DATA[: SMALL_BYTES_MAX + 1] + b"next" + DATA[5:15]
    assert read_ahead.asked == 1


def test_socket_that_accepts_few_bytes_at_a_time(file: File, ends: Any) -> None:
    """No byte is lost or sent twice."""
    read_ahead: Any = Warm()
    ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    outgoing = OutgoingQueue(ends[0], read_ahead, "the test")
    pieces: list[Any] = []
    expected = b""
    for number in range(20):
        pieces += [b"%d" % number, FileRange(file, number, 1000 * number + 1)]
        expected += b"%d" % number + DATA[number : number + 1000 * number + 1]
    outgoing.extend(pieces)
    received = b""
    while outgoing:
        outgoing.send()
        assert not outgoing.failed
        received += ends[1].recv(1 << 20)
    assert received == expected


def test_truncated_file_closes_the_connection(file: File, ends: Any) -> None:
    """The response header announced more bytes than the file has, so the connection cannot be used any more."""
    outgoing = OutgoingQueue(ends[0], Warm(), "the test")  # type: ignore[arg-type]
    outgoing.extend([b"head", FileRange(file, len(DATA) - 10, 100)])
    outgoing.send()
    outgoing.send()
    assert outgoing.failed
