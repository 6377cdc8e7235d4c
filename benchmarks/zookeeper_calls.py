"""Counts the calls and bytecodes of one request of the ZooKeeper client, without sockets and clocks.

A client is connected to an in-memory server that sends fixed responses.  ``sync`` requests are awaited one by one in a
coroutine; ``pipelined`` requests are sent together, and their responses arrive in one read.  The Python calls, C calls
and bytecodes are those of kreplica and Twisted.

``python -m benchmarks.zookeeper_calls``
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport

from benchmarks.calls import Cost, count_calls
from benchmarks.tables import markdown
from kreplica.zookeeper import Stat, ZooKeeperClient
from kreplica.zookeeper.records import ConnectResponse, frame, reply_frame
from kreplica.zookeeper.responses import encode_data, encode_stat

REQUESTS = 100
STAT = Stat(1, 2, 1_700_000_000_000, 1_700_000_000_000, 3, 0, 0, 0, 50, 0, 2)
DATA = bytes(50)
PATH = "/benchmark/123456"


class Kind(NamedTuple):
    """One kind of request.

    :param submit: sends the request.
    :param response: body of its response.
    """

    name: str
    submit: Callable[[ZooKeeperClient], Deferred[Any]]
    response: bytes


KINDS = (
    Kind("get", lambda client: client.get_data(PATH), encode_data(DATA, STAT)),
    Kind("set", lambda client: client.set_data(PATH, DATA), encode_stat(STAT)),
    Kind("exists", lambda client: client.exists(PATH), encode_stat(STAT)),
)


class MemoryServer:
    """A connected client, and the server's side of its connection."""

    def __init__(self) -> None:
        self._reactor = MemoryReactorClock()
        self.client = ZooKeeperClient(self._reactor, "127.0.0.1:2181", random=random.Random(1))
        self.client.start()
        self._reactor.advance(0)
        factory = self._reactor.tcpClients[0][2]
        self._protocol: Any = factory.buildProtocol(None)
        self._transport = StringTransport()
        self._protocol.makeConnection(self._transport)
        self._protocol.dataReceived(frame(ConnectResponse(18_000, 1, bytes(16)).encode()))
        self._transport.clear()

    def flush(self) -> None:
        """Run the client's pending calls and discard its requests."""
        self._reactor.advance(0)
        self._transport.clear()

    def receive(self, data: bytes) -> None:
        """Pass received bytes to the client."""
        self._protocol.dataReceived(data)
        self._transport.clear()


class Requests:
    """Requests of one kind, as one action whose cost can be counted."""

    def __init__(self, kind: Kind, *, pipelined: bool) -> None:
        self._server = MemoryServer()
        self._kind = kind
        self._xid = 0
        self._run = self._pipelined if pipelined else self._sync

    def prepare(self) -> Callable[[], None]:
        """Encode the responses of the next run, and return the action."""
        first = self._xid + 1
        self._xid += REQUESTS
        responses = [reply_frame(xid, xid, 0, self._kind.response) for xid in range(first, self._xid + 1)]
        return lambda: self._run(responses)

    def _pipelined(self, responses: list[bytes]) -> None:
        for _ in responses:
            self._kind.submit(self._server.client)
        self._server.flush()
        self._server.receive(b"".join(responses))

    def _sync(self, responses: list[bytes]) -> None:
        finished = Deferred.fromCoroutine(self._await_each(len(responses)))
        self._server.flush()
        for response in responses:
            self._server.receive(response)
        assert finished.called

    async def _await_each(self, count: int) -> None:
        for _ in range(count):
            await self._kind.submit(self._server.client)


def count_bytecodes(action: Callable[[], object]) -> int:
    """Count the bytecodes that an action executes."""
    counts: Counter[str] = Counter()

    def trace(frame: Any, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts[event] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return counts["opcode"]


def costs() -> dict[str, Cost]:
    """Return the calls per request, rounded up."""
    return {name: Cost(-(-cost.python_calls // REQUESTS), -(-cost.c_calls // REQUESTS)) for name, cost, _ in _counts()}


def _counts() -> list[tuple[str, Cost, int]]:
    found = []
    for pipelined in (False, True):
        for kind in KINDS:
            requests = Requests(kind, pipelined=pipelined)
            requests.prepare()()  # warm-up
            cost = count_calls(requests.prepare())
            title = f"ZooKeeper {kind.name}, {f'one of {REQUESTS} pipelined' if pipelined else 'sync'}"
            found.append((title, cost, count_bytecodes(requests.prepare())))
    return found


def run() -> list[dict[str, Any]]:
    """Return a row per kind of request: calls and bytecodes of one request."""
    return [
        {
            "request": name,
            "Python calls": cost.python_calls / REQUESTS,
            "C calls": cost.c_calls / REQUESTS,
            "bytecodes": round(bytecodes / REQUESTS),
        }
        for name, cost, bytecodes in _counts()
    ]


if __name__ == "__main__":
    print(markdown(run()))
