"""A whole server with real sockets: listeners, disk reads, memory limits, priority of control connections."""

from __future__ import annotations

import gc
import os
import socket
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from server_scene import Scene, fetch_frame, play, produce_frame
from twisted.internet.defer import Deferred

from kreplica.errors import SettingsError
from kreplica.model import Endpoint
from kreplica.runtime.disk import FileRange
from kreplica.runtime.os_disk import OsDisk, OsFile
from kreplica.server.protocol.limits import Bounds
from kreplica.server.transport import control_priority
from kreplica.server.transport.epoll_transport import EpollTransport
from tests.support.server_process import free_ports

MEBI = 1024 * 1024


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("host", "advice"),
    [("127.0.0.1", "another program uses this port"), ("192.0.2.1", "no interface of this machine has this address")],
)
def test_unavailable_port(host: str, advice: str) -> None:
    """The error names the listener, the address, and the remedy."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        with pytest.raises(SettingsError, match=f"cannot listen on INTERNAL://{host}:{scene.port}: {advice}"):
            scene.server.listen(Endpoint("INTERNAL", host, scene.port))

    play("epoll", scenario)


def test_handlers_see_the_listener_name() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start()
        first, scene.port = scene.port, scene.server.listen(Endpoint("INTERNAL", "127.0.0.1", 0))
        for port in (first, scene.port):
            scene.port = port
            client = await scene.connect()
            client.send(produce_frame(1, b"x"))
            await client.next_ids(1)
        assert [connection.listener for connection in scene.handlers.connections] == ["PLAINTEXT", "INTERNAL"]

    play("epoll", scenario)


def test_shared_port() -> None:
    """Another process can listen on a shared port; connections to it are those of the listener."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        (shared,) = free_ports(1)
        scene.server.listen(Endpoint("INTERNAL", "127.0.0.1", 0), shared_port=shared)
        client = await scene.connect(shared)
        client.send(produce_frame(1, b"x"))
        assert await client.next_ids(1) == [1]
        assert [connection.listener for connection in scene.handlers.connections] == ["INTERNAL"]
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind(("127.0.0.1", shared))
            other.listen()
        await scene.server.stop()
        with socket.create_server(("127.0.0.1", shared)):
            pass  # the server has left the port

    play("epoll", scenario)


def test_shared_port_in_use() -> None:
    """If a program uses the port without sharing it, the error names the address and the remedy."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(SettingsError, match=f"INTERNAL://127.0.0.1:{port}: another program uses this port"):
                scene.server.listen(Endpoint("INTERNAL", "127.0.0.1", 0), shared_port=port)

    play("epoll", scenario)


def test_shared_port_of_brokers_in_one_process() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start()
        with pytest.raises(SettingsError, match=r"kreplica\.bootstrap\.port requires a process"):
            scene.server.listen(Endpoint("INTERNAL", scene.host, 0), shared_port=9000)

    play("simulated", scenario)


def test_ipv6() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start()
        scene.host = "::1"
        scene.port = scene.server.listen(Endpoint("PLAINTEXT", "::1", 0))
        client = await scene.connect()
        client.send(produce_frame(1, b"x"))
        assert await client.next_ids(1) == [1]

    play("epoll", scenario)


def test_socket_buffer_sizes_are_set_if_configured() -> None:
    """socket.send.buffer.bytes and socket.receive.buffer.bytes are passed to the sockets."""

    async def scenario(scene: Scene) -> None:
        scene.start(Bounds(send_buffer_bytes=50_000, receive_buffer_bytes=60_000))
        await scene.connect()
        await scene.until(lambda: len(scene.server.resources.connections) == 1)
        (connection,) = scene.server.resources.connections
        options = (socket.SO_SNDBUF, socket.SO_RCVBUF)
        sizes = [connection._transport.socket.getsockopt(socket.SOL_SOCKET, option) for option in options]  # type: ignore[attr-defined]
        assert sizes == [100_000, 120_000]  # Linux doubles them

    play("epoll", scenario)


def congestion_control(one: socket.socket) -> bytes:
    """Return the name of a socket's congestion control algorithm."""
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_local_connections_are_not_paced() -> None:
    """A connection between two addresses on this machine does not use BBR; others use the system's default."""
    with socket.socket() as one:
        default = congestion_control(one)

    async def scenario(scene: Scene) -> None:
        scene.start()
        on_loopback = congestion_control(scene.server._ports[0].socket)
        scene.port = scene.server.listen(Endpoint("EVERYWHERE", "", 0))
        everywhere = congestion_control(scene.server._ports[1].socket)
        found = []
        for host in ("127.0.0.1", "127.0.0.2"):
            with socket.create_connection(("127.0.0.1", scene.port), source_address=(host, 0)):
                await scene.until(lambda: len(scene.server.resources.connections) == 1)
                (connection,) = scene.server.resources.connections
                found.append(congestion_control(connection._transport.socket))  # type: ignore[attr-defined]
            await scene.until(lambda: len(scene.server.resources.connections) == 0)
        assert (on_loopback, everywhere, found) == (b"reno", default, [b"reno", default])

    play("epoll", scenario)


class ColdFile(OsFile):
    """A file with only the last range that was read in the page cache."""

    def __init__(self, path: str) -> None:
        super().__init__(path, os.open(path, os.O_RDWR))
        self.warm: set[int] = set()
        self.broken = False

    def is_cached(self, position: int, size: int) -> bool:
        return position in self.warm

    def read_cached(self, position: int, size: int) -> bytearray | None:
        return super().read_cached(position, size) if position in self.warm else None

    def read_at(self, position: int, size: int) -> bytes:
        if self.broken:
            raise OSError(5, "the device is broken", self.path)
        self.warm.add(position)
        return super().read_at(position, size)


@pytest.mark.parametrize("environment", ["epoll", "tls", "twisted"])
def test_data_outside_of_the_page_cache_is_read_in_a_thread(environment: str, tmp_path: Path) -> None:
    """While a client that reads old data waits for the disk, others are served; all get correct data."""
    data = os.urandom(3 * MEBI)
    (tmp_path / "segment").write_bytes(data)
    file = ColdFile(str(tmp_path / "segment"))

    async def scenario(scene: Scene) -> None:
        waiting: list[tuple[Any, tuple[Any, ...], Deferred[Any]]] = []
        scene.start()

        def later(function: Any, *arguments: Any) -> Deferred[Any]:
            waiting.append((function, arguments, Deferred()))
            return waiting[-1][2]

        scene.server.resources.page_prefetch._offload.run = later  # type: ignore[method-assign, assignment]
        client, other = await scene.connect(), await scene.connect()
        scene.handlers.records = FileRange(file, 0, len(data))
        client.send(fetch_frame(1), produce_frame(2, b"x"))
        await scene.until(lambda: bool(waiting))
        other.send(produce_frame(3, b"x"))
        assert await other.next_ids(1) == [3]
        assert not client.frames
        while not client.frames:
            if waiting:
                function, arguments, deferred = waiting.pop(0)
                deferred.callback(function(*arguments))
            await scene.pause()
        assert await client.next_fetch() == (1, data)
        assert await client.next_ids(1) == [2]
        assert scene.server.metrics.cold_reads == (12 if environment == "twisted" else 3)

    play(environment, scenario)


@pytest.mark.parametrize("environment", ["epoll", "tls", "twisted"])
def test_each_range_is_checked_against_the_page_cache(environment: str, tmp_path: Path) -> None:
    """The state of one file is not assumed for the next, even at the same position."""
    files = []
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(bytes(10_000))
        files.append(ColdFile(str(tmp_path / name)))

    async def scenario(scene: Scene) -> None:
        scene.start()
        client = await scene.connect()
        for number, file in enumerate(files):
            scene.handlers.records = FileRange(file, 0, 10_000)
            client.send(fetch_frame(number))
            await client.next_fetch()
        assert scene.server.metrics.cold_reads == 2

    play(environment, scenario)


def test_close_during_a_disk_read_does_not_spin(tmp_path: Path) -> None:
    """A connection that will close after the pending read does not keep the event loop busy."""
    (tmp_path / "segment").write_bytes(bytes(10_000))
    file = ColdFile(str(tmp_path / "segment"))

    async def scenario(scene: Scene) -> None:
        scene.start()
        loaded: Deferred[Any] = Deferred()
        scene.server.resources.page_prefetch._offload.run = lambda *_: loaded  # type: ignore[method-assign, assignment]
        client = await scene.connect()
        scene.handlers.records = FileRange(file, 0, 10_000)
        client.send(fetch_frame(1), produce_frame(2, b"boom"))
        await scene.until(lambda: len(scene.handlers.received) == 1 and scene.server.metrics.api(0).errors == 1)
        for _ in range(3):
            await scene.pause()
        reactor: Any = scene.runtime.reactor
        assert not [writer for writer in reactor.getWriters() if isinstance(writer, EpollTransport)]
        loaded.callback(None)
        assert await client.next_fetch() == (1, bytes(10_000))
        await client.wait_until_closed()

    play("epoll", scenario)


@pytest.mark.parametrize("environment", ["epoll", "tls", "twisted"])
def test_disk_error_closes_the_connection(environment: str, tmp_path: Path) -> None:
    """Other connections stay open."""
    (tmp_path / "segment").write_bytes(bytes(10_000))
    file = ColdFile(str(tmp_path / "segment"))
    file.broken = True

    async def scenario(scene: Scene) -> None:
        scene.start()
        client, other = await scene.connect(), await scene.connect()
        scene.handlers.records = FileRange(file, 0, 10_000)
        client.send(fetch_frame(1))
        await client.wait_until_closed()
        other.send(produce_frame(3, b"x"))
        assert await other.next_ids(1) == [3]

    play(environment, scenario)


@pytest.mark.parametrize("environment", ["epoll", "tls", "twisted"])
def test_file_stays_open_while_it_is_sent(environment: str, tmp_path: Path) -> None:
    """A segment that is removed while a slow client reads it is sent completely, and then closed."""
    path = str(tmp_path / "segment")
    data = os.urandom(12 * MEBI)
    (tmp_path / "segment").write_bytes(data)

    def is_open() -> bool:
        links = [os.readlink(entry) for entry in map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd"))
                 if os.path.islink(entry)]  # fmt: skip
        return any(link.startswith(path) for link in links)

    async def scenario(scene: Scene) -> None:
        scene.start()
        client = await scene.connect()
        client.transport.pauseProducing()
        scene.handlers.records = FileRange(OsDisk().open(path), 0, len(data))
        client.send(fetch_frame(1))
        await scene.until(lambda: bool(scene.handlers.received))
        scene.handlers.records = b""
        os.remove(path)
        assert is_open()
        client.transport.resumeProducing()
        assert await client.next_fetch() == (1, data)
        await scene.until(lambda: not is_open())

    play(environment, scenario)


def test_control_connections_have_priority_over_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending requests of a control connection are handled before data that arrived earlier."""
    monkeypatch.setattr(control_priority, "POLL_INTERVAL_S", 0.0)

    async def scenario(scene: Scene) -> None:
        scene.start()
        data, control = await scene.connect(), await scene.connect()
        control.send(produce_frame(1, b"control"))
        data.send(produce_frame(2, b"x"))
        assert await control.next_ids(1) == [1]
        assert await data.next_ids(1) == [2]
        (data_transport,) = [
            connection._transport for connection in scene.handlers.connections if not connection.is_control
        ]
        # Both requests have arrived before the reactor handles either, and it selects the data connection first.
        data.transport.socket.send(produce_frame(4, b"x"))
        control.transport.socket.send(produce_frame(3, b"x"))
        data_transport.doRead()
        assert scene.handlers.received == [1, 2, 3, 4]
        control.close()
        await scene.until(lambda: len(scene.server.resources.connections) == 1)
        assert not scene.server.resources.control

    play("epoll", scenario)


def test_memory_follows_received_bytes_not_announced_lengths() -> None:
    """200 clients that announce 100 MB each but send only a part cost little more memory than this part."""
    announced = struct.pack(">i", 100_000_000)
    head = announced + produce_frame(1, b"")[4:20]
    part = head + bytes(200_000)

    async def scenario(scene: Scene) -> None:
        scene.start()
        before = resident_bytes()
        clients = [socket.create_connection(("127.0.0.1", scene.port)) for _ in range(200)]
        try:
            for client in clients:
                client.setblocking(False)
                sent = 0
                while sent < len(part):
                    try:
                        sent += client.send(part[sent:])
                    except BlockingIOError:
                        await scene.pause()
            partial = scene.server.resources.partial_frames
            await scene.until(lambda: partial.held_bytes == 200 * len(part))
            assert resident_bytes() - before < 100 * MEBI
        finally:
            for client in clients:
                client.close()
        await scene.until(lambda: len(scene.server.resources.connections) == 0)
        assert partial.held_bytes == 0

    play("epoll", scenario)


def test_idle_connections_take_little_memory() -> None:
    """A connection whose client has sent one request takes less than 1.4 KB, including the client's socket; 10,000 of
    them take 9 MB in a broker."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        clients = [socket.create_connection(("127.0.0.1", scene.port)) for _ in range(10)]
        await scene.until(lambda: len(scene.server.resources.connections) == 10)
        server = tracemalloc.Filter(True, "*/kreplica/server/*")
        twisted = tracemalloc.Filter(True, "*/twisted/*")
        accepted = tracemalloc.Filter(True, socket.__file__)
        tracemalloc.start()
        try:
            clients += [socket.create_connection(("127.0.0.1", scene.port)) for _ in range(500)]
            for client in clients:
                client.sendall(produce_frame(1, b"x"))
            for client in clients:
                client.setblocking(False)
                await scene.until(lambda client=client: is_readable(client))
            gc.collect()
            traces = tracemalloc.take_snapshot().filter_traces([server, twisted, accepted]).statistics("filename")
        finally:
            tracemalloc.stop()
            for client in clients:
                client.close()
        assert sum(each.size for each in traces) / 500 < 1400

    play("epoll", scenario)


def is_readable(client: socket.socket) -> bool:
    """Return True if a non-blocking socket has data."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_handling_time_is_linear_in_the_frame_size() -> None:
    """A request of 100 MB takes about ten times as long as one of 10 MB, and its memory is released."""

    async def scenario(scene: Scene) -> None:
        scene.start()
        spent = []
        client = await scene.connect()
        for size in (10_000_000, 100_000_000):
            frame = produce_frame(1, bytes(size))
            began = time.process_time()
            client.transport.write(frame)
            assert await client.answer() == (1, _answered(size))
            spent.append(time.process_time() - began)
        assert spent[1] < 40 * max(spent[0], 0.005)
        assert scene.server.resources.buffers.kept_bytes <= 32 * MEBI

    play("epoll", scenario, timeout_s=60.0)


def _answered(size: int) -> dict[str, Any]:
    row = {"index": 0, "error_code": 0, "base_offset": size, "log_append_time_ms": -1, "log_start_offset": -1}
    return {"responses": [{"name": "t", "partition_responses": [row]}], "throttle_time_ms": 0}
