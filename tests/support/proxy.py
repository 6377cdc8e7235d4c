"""TCP proxies in front of every broker, and between every broker and the coordinator; they need no privileges.

The proxy runs in its own thread.  It finds the source broker of a connection by the process that owns the other end.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.broker_process import Place
from tests.support.links import CLIENTS, COORDINATOR, node_pairs
from tests.support.server_process import free_ports

CHUNK_SIZE_MAX = 65536
CHUNKS_UNDER_WAY_MAX = 64
CALL_S_MAX = 10.0


class OneWayLink:
    """One direction of the link between two nodes.

    :ivar whole: set while the link is up.
    :ivar delay_s: latency of the link.
    """

    def __init__(self) -> None:
        self.whole = asyncio.Event()
        self.whole.set()
        self.delay_s = 0.0


class ProxyLinks:
    """``Links`` that are implemented by proxies on loopback, for brokers 1 to N.

    :param zookeeper: ``host:port,host:port/path`` of the coordinator.
    """

    def __init__(self, zookeeper: str, brokers: int = 3) -> None:
        servers, slash, path = zookeeper.partition("/")
        ids = range(1, brokers + 1)
        addresses = [_address(server) for server in servers.split(",")]
        ports = iter(free_ports(brokers * (2 + len(addresses))))
        self.places: dict[int, Place] = {}
        self._targets: list[tuple[int, tuple[str, int], int | None, int]] = []
        for broker_id in ids:
            port, advertised = next(ports), next(ports)
            self._targets.append((advertised, ("127.0.0.1", port), None, broker_id))
            near = []
            for address in addresses:
                near.append(next(ports))
                self._targets.append((near[-1], address, broker_id, COORDINATOR))
            connect = ",".join(f"127.0.0.1:{each}" for each in near) + slash + path
            self.places[broker_id] = Place("127.0.0.1", port, "127.0.0.1", advertised, connect)
        self._ways: defaultdict[tuple[int, int], OneWayLink] = defaultdict(OneWayLink)
        self._pids: Callable[[], Mapping[int, int]] = dict
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def attach(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Set the function that returns the process ID -> broker ID of all running brokers."""
        self._pids = pids

    def cut_one_way(self, sources: Iterable[int], destinations: Iterable[int]) -> None:
        """Take down all links from the sources to the destinations."""
        self._call(self._cut(node_pairs(sources, destinations)))

    def slow(self, sources: Iterable[int], destinations: Iterable[int], delay_s: float) -> None:
        """Add latency between the nodes, in both directions."""
        sources, destinations = list(sources), list(destinations)
        self._call(self._slow(node_pairs(sources, destinations) + node_pairs(destinations, sources), delay_s))

    def heal(self) -> None:
        """Bring all links up and remove their latency."""
        self._call(self._heal())

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in the proxy's thread ---

    def _call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(CALL_S_MAX)

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(self._accepting(address, source, destination), "127.0.0.1", port)
            for port, address, source, destination in self._targets
        ]

    def _accepting(
        self, address: tuple[str, int], source: int | None, destination: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            node = self._node_of(writer) if source is None else source
            out, back = self._ways[node, destination], self._ways[destination, node]
            task = self._loop.create_task(_connect(reader, writer, address, out, back))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return accepted

    def _node_of(self, writer: asyncio.StreamWriter) -> int:
        inode = _inode_of(writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
        owners = [broker_id for pid, broker_id in self._pids().items() if inode in _sockets_of(pid)]
        return owners[0] if owners else CLIENTS

    async def _cut(self, which: list[tuple[int, int]]) -> None:
        for way in which:
            self._ways[way].whole.clear()

    async def _slow(self, which: list[tuple[int, int]], delay_s: float) -> None:
        for way in which:
            self._ways[way].delay_s = delay_s

    async def _heal(self) -> None:
        for way in self._ways.values():
            way.whole.set()
            way.delay_s = 0.0

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _connect(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    address: tuple[str, int],
    out: OneWayLink,
    back: OneWayLink,
) -> None:
    """Forward one connection until it ends; connect to the target once both directions are up."""
    try:
        await out.whole.wait()
        await back.whole.wait()
        far_reader, far_writer = await asyncio.open_connection(*address)
        try:
            await asyncio.gather(_carry(reader, far_writer, out), _carry(far_reader, writer, back))
        finally:
            far_writer.transport.abort()
    except OSError:
        pass  # connection refused: the proxy closes the client's connection
    finally:
        writer.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: OneWayLink) -> None:
    """Forward all data and the end of the stream with the link's latency; forward nothing while the link is down."""
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_UNDER_WAY_MAX)
    taking = asyncio.create_task(_take(reader, under_way, way))
    try:
        data = b"begin"
        while data:
            due_s, data = await under_way.get()
            await asyncio.sleep(due_s - asyncio.get_running_loop().time())
            await way.whole.wait()
            if data:
                writer.write(data)
                await writer.drain()
    except OSError:
        pass  # the other direction detects that the peer is gone
    finally:
        taking.cancel()
        writer.close()


async def _take(reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]], way: OneWayLink) -> None:
    data = b"begin"
    while data:
        try:
            data = await reader.read(CHUNK_SIZE_MAX)
        except OSError:
            data = b""
        await under_way.put((asyncio.get_running_loop().time() + way.delay_s, data))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _inode_of(near: tuple[str, int], far: tuple[str, int]) -> str:
    """Return the inode of the socket with these local and remote addresses; empty if none exists."""
    wanted = [_in_hex(near), _in_hex(far)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[9]
    return ""


def _in_hex(address: tuple[str, int]) -> str:
    octets = bytes(map(int, address[0].split(".")))
    return f"{int.from_bytes(octets, 'little'):08X}:{address[1]:04X}"


def _sockets_of(pid: int) -> set[str]:
    """Return the inodes of a process's sockets; empty if it has exited."""
    inodes = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(entry.path)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:
        pass
    return inodes
