"""TCP proxy that delays every byte by half a round trip in each direction.

``python -m benchmarks.delay_proxy ROUND_TRIP_MS PORT ...`` prints one port for each target port and runs until its
standard input ends.  It waits in ``select``, whose timeout has a resolution of microseconds; ``epoll`` rounds up to
milliseconds.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType

CHUNK_SIZE_MAX = 1 << 20


class DelayProxy:
    """The proxy as a subprocess and context manager.

    :param targets: ports on loopback.
    :ivar ports: the proxy's port for each target; the targets themselves if the round trip is 0.
    """

    def __init__(self, round_trip_ms: float, targets: Sequence[int]) -> None:
        self._round_trip_ms = round_trip_ms
        self.ports = list(targets)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> DelayProxy:
        if self._round_trip_ms:
            command = [sys.executable, "-m", "benchmarks.delay_proxy", str(self._round_trip_ms), *map(str, self.ports)]
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            self.ports = [int(port) for port in process.stdout.readline().split()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class _Relay:
    """Event loop of the proxy."""

    def __init__(self, delay_s: float, targets: Sequence[int]) -> None:
        self._delay_s = delay_s
        self._listeners = {socket.create_server(("127.0.0.1", 0)): target for target in targets}
        self._peers: dict[socket.socket, socket.socket] = {}
        # The delay is the same for all bytes, so the oldest are due first; an empty item closes the connection.
        self._delayed: deque[tuple[float, socket.socket, bytes]] = deque()

    def ports(self) -> list[int]:
        return [listener.getsockname()[1] for listener in self._listeners]

    def run(self) -> None:
        while True:
            timeout_s = max(self._delayed[0][0] - time.perf_counter(), 0.0) if self._delayed else None
            readable, _, _ = select.select([sys.stdin, *self._listeners, *self._peers], [], [], timeout_s)
            for each in readable:
                if each is sys.stdin:
                    return
                if each in self._listeners:
                    self._accept(each)
                elif each in self._peers:
                    self._read(each)
            while self._delayed and self._delayed[0][0] <= time.perf_counter():
                self._deliver(*self._delayed.popleft()[1:])

    def _accept(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", self._listeners[listener]))
        for source, destination in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[source] = destination

    def _read(self, source: socket.socket) -> None:
        try:
            data = source.recv(CHUNK_SIZE_MAX)
        except OSError:
            data = b""
        destination = self._peers[source]
        if not data:
            del self._peers[source]
        self._delayed.append((time.perf_counter() + self._delay_s, destination, data))

    def _deliver(self, destination: socket.socket, data: bytes) -> None:
        try:
            if data:
                destination.sendall(data)
                return
        except OSError:
            pass  # closed by its peer
        self._peers.pop(destination, None)
        destination.close()


def main(round_trip_ms: float, targets: Sequence[int]) -> None:
    """Relay until standard input ends."""
    relay = _Relay(round_trip_ms / 2000, targets)
    print(*relay.ports(), flush=True)
    relay.run()


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(port) for port in sys.argv[2:]])
