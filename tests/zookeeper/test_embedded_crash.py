"""``kill -9`` of a real coordinator process, again and again, under pipelined writes: nothing answered is lost."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from random import Random

from kreplica.testing.coordinator import CoordinatorProcess
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import (
    REPLY_HEADER,
    ConnectRequest,
    ConnectResponse,
    Opcode,
    frame,
    read_stat,
    request_frame,
)
from kreplica.zookeeper.requests import Create, GetData, Multi, SetData

KILLS_COUNT = 6
REQUESTS_COUNT = 4_000
ZNODES_COUNT = 20
TIMEOUT_S = 20.0


class BlockingClient:
    """A session on a plain socket."""

    def __init__(self, port: int, session: ConnectResponse | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        session_id, password = (session.session_id, session.password) if session else (0, bytes(16))
        self._socket.sendall(frame(ConnectRequest(0, 30_000, session_id, password).encode()))
        self.session = ConnectResponse.decode(Reader(self._frame()))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    def answer(self) -> tuple[int, int, bytes]:
        """Transaction id, error, body."""
        data = self._frame()
        xid, _zxid, error = REPLY_HEADER.unpack_from(data)
        return xid, error, data[REPLY_HEADER.size :]

    def ask(self, opcode: int, body: bytes) -> bytes:
        self.send(request_frame(1, opcode, body))
        _, error, answer = self.answer()
        assert error == 0
        return answer

    def read(self, path: str) -> int:
        """The number that a znode holds."""
        reader = Reader(self.ask(Opcode.GET_DATA, GetData(path).encode()))
        data = reader.buffer()
        read_stat(reader)
        assert data is not None
        return int(data)

    def close(self) -> None:
        self._socket.close()


def writes(first: int) -> list[bytes]:
    """Numbers that only grow, one request each: single sets, and pairs that belong together."""
    requests = []
    for number in range(first, first + REQUESTS_COUNT):
        data = b"%d" % number
        if number % 3:
            request, opcode = SetData(f"/single-{number % ZNODES_COUNT}", data).encode(), Opcode.SET_DATA
        else:
            pair = number % ZNODES_COUNT
            request = Multi([SetData(f"/left-{pair}", data), SetData(f"/right-{pair}", data)]).encode()
            opcode = Opcode.MULTI
        requests.append(request_frame(number, opcode, request))
    return requests


def pour_and_kill(coordinator: CoordinatorProcess, client: BlockingClient, first: int, kill_after: int) -> int:
    """Send all at once, kill the process when so many are answered, and return the last number that was answered."""
    client.send(b"".join(writes(first)))
    answered = first - 1
    try:
        for expected in range(first, first + REQUESTS_COUNT):
            xid, error, _ = client.answer()
            assert (xid, error) == (expected, 0)
            answered = xid
            if expected - first == kill_after:
                coordinator.kill()
    except OSError:
        pass
    client.close()
    return answered


def test_a_killed_coordinator_has_lost_nothing_that_it_answered(tmp_path: Path) -> None:
    """Every znode holds at least the last number that was answered for it; what belongs together is together."""
    random = Random(1)
    with CoordinatorProcess(tmp_path) as coordinator:
        client = BlockingClient(coordinator.port)
        session = client.session
        names = [f"/{kind}-{number}" for kind in ("single", "left", "right") for number in range(ZNODES_COUNT)]
        client.ask(Opcode.MULTI, Multi([Create(name, b"0") for name in names]).encode())
        client.ask(Opcode.CREATE2, Create("/mine", ephemeral=True).encode())
        acknowledged = dict.fromkeys(names, 0)
        for round_ in range(KILLS_COUNT):
            first = round_ * REQUESTS_COUNT + 1
            last = pour_and_kill(coordinator, client, first, random.randrange(REQUESTS_COUNT // 2))
            for number in range(first, last + 1):
                kinds = ("single",) if number % 3 else ("left", "right")
                acknowledged.update({f"/{kind}-{number % ZNODES_COUNT}": number for kind in kinds})
            coordinator.start()
            client = BlockingClient(coordinator.port, session)
            found = {name: client.read(name) for name in names}
            assert not {name: number for name, number in found.items() if number < acknowledged[name]}
            assert [found[f"/left-{n}"] for n in range(ZNODES_COUNT)] == [
                found[f"/right-{n}"] for n in range(ZNODES_COUNT)
            ]
            # What was not answered may have happened or not, but only in the order of the requests.
            assert max(found.values()) >= last
            assert client.session == session
        client.ask(Opcode.EXISTS, GetData("/mine").encode())
        client.close()
