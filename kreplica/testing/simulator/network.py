"""Network between simulated hosts: delays, ordering, partitions, slow links, lost connections.

A network partition (``cut``) affects simulated connections the way a real partition affects TCP connections: sent data
waits until the link is restored and arrives after a retransmission; a connection whose data waits for too long fails.
Half-open connections result from ``drop_connections(one_way=True)`` and from hosts that lose power.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any
from weakref import WeakSet

from kreplica.testing.simulator.links import Link, Segment
from kreplica.testing.simulator.scheduler import Call, Process, Scheduler
from kreplica.testing.simulator.sockets import LOOPBACK_NAMES, Address, SimulatedSocket

ANY_INTERFACE = ("", "0.0.0.0", "::")
FIRST_EPHEMERAL_PORT, LAST_EPHEMERAL_PORT = 32768, 60999
FIRST_DESCRIPTOR = 1_000_000
RETRANSMISSION_DELAY_S_MAX = 1.0
# Linux gives up after 15 retransmissions of data (tcp_retries2) and 6 of a SYN (tcp_syn_retries).
DATA_TIMEOUT_S = 924.6
CONNECT_TIMEOUT_S = 127.0
SYN_RETRY_S = 1.0
EXTRA_DELAY_S_MAX = 15.0
"""Maximum delay of a segment that is lost and sent again (``Link.late_chance``), in addition to the link's latency."""


class Network:
    """Hosts, listening sockets, and the links between hosts.

    :param random: used only by the network, so that random numbers drawn by hosts do not change its behaviour.
    """

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.random = random
        self.latency_s = (0.000_1, 0.001)
        self.loopback_latency_s = (0.000_01, 0.000_05)
        self._scheduler = scheduler
        self._process = Process("network")
        self._hosts: dict[str, int] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], SimulatedSocket] = {}
        self._blocked_senders: dict[SimulatedSocket, Call] = {}
        self._sockets: dict[str, WeakSet[SimulatedSocket]] = {}
        self._socket_count = 0

    # --- faults and conditions ---

    def link(self, source: str, destination: str) -> Link:
        """Return the link in one direction; the caller may change it."""
        link = self._links.get((source, destination))
        if link is None:
            latency_s = self.loopback_latency_s if source == destination else self.latency_s
            link = self._links[source, destination] = Link(latency_s)
        return link

    def slow(self, a: str, b: str, latency_s: tuple[float, float], bytes_per_s: float | None = None) -> None:
        for link in (self.link(a, b), self.link(b, a)):
            link.latency_s, link.bytes_per_s = latency_s, bytes_per_s

    def cut(self, a: str, b: str, one_way: bool = False) -> None:
        """Block traffic from ``a`` to ``b``, and back unless ``one_way``."""
        self.link(a, b).cut = True
        if not one_way:
            self.link(b, a).cut = True

    def isolate(self, host: str) -> None:
        for other in self._hosts:
            if other != host:
                self.cut(host, other)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo ``cut`` and ``isolate`` between two hosts, for one host, or (without names) everywhere."""
        for ends, link in self._links.items():
            if (a is None or a in ends) and (b is None or b in ends):
                link.cut = False
        for sender in list(self._blocked_senders):
            if not self.is_cut(sender.host, sender.destination):
                self._release(sender)

    def is_cut(self, source: str, destination: str) -> bool:
        link = self._links.get((source, destination))
        return link is not None and link.cut

    def drop_connections(self, a: str, b: str, one_way: bool = False) -> None:
        """Reset all connections between two hosts.

        :param one_way: only ``a`` notices; ``b`` holds a half-open connection until it sends something.
        """
        for connection in self.connections(a, b):
            connection.reset(errno.ECONNRESET)
            if connection.peer is not None and not one_way:
                connection.peer.reset(errno.ECONNRESET)

    def connections(self, a: str, b: str) -> list[SimulatedSocket]:
        """Return the sockets at ``a`` that are connected to ``b``, in order of creation."""
        sockets = sorted(self._sockets.get(a, ()), key=lambda end: end.number)
        return [end for end in sockets if end.connected and not end.closed and end.destination == b]

    # --- for reactors ---

    def add_host(self, name: str) -> None:
        self._hosts.setdefault(name, FIRST_EPHEMERAL_PORT)

    def has_host(self, name: str) -> bool:
        return name in self._hosts or name in LOOPBACK_NAMES

    def socket(self, host: str) -> SimulatedSocket:
        self._socket_count += 1
        created = SimulatedSocket(self, FIRST_DESCRIPTOR + self._socket_count, host)
        self._sockets.setdefault(host, WeakSet()).add(created)
        return created

    # --- for sockets ---

    def bind(self, listener: SimulatedSocket, address: Address) -> Address:
        """Return the address of a socket that is about to listen, with an ephemeral port if no port is given.

        :raise OSError: ``EADDRINUSE`` or ``EADDRNOTAVAIL``.
        """
        interface, port = address
        if interface not in (*ANY_INTERFACE, *LOOPBACK_NAMES, listener.host):
            raise OSError(errno.EADDRNOTAVAIL, f"{interface} is not an address of {listener.host}")
        if not port:
            port = self._ephemeral_port(listener.host)
        elif (listener.host, port) in self._listening:
            raise OSError(errno.EADDRINUSE, f"port {port} of {listener.host} is in use")
        return ("0.0.0.0" if interface in ANY_INTERFACE else interface), port

    def listen(self, listener: SimulatedSocket) -> None:
        self._listening[listener.host, listener.local[1]] = listener

    def stop_listening(self, listener: SimulatedSocket) -> None:
        if self._listening.get((listener.host, listener.local[1])) is listener:
            del self._listening[listener.host, listener.local[1]]

    def connect(self, client: SimulatedSocket, address: Address) -> int:
        """Start a handshake.

        :return: an errno, ``EINPROGRESS`` on success.
        """
        name, port = address
        loopback = name in LOOPBACK_NAMES
        target = client.host if loopback else name
        if target not in self._hosts:
            return errno.EHOSTUNREACH
        if not client.local[1]:
            source = name if loopback else client.host
            client.local = (source, self._ephemeral_port(client.host))
        client.connecting = True
        client.set_destination(target)
        self.transmit(client, 0, self._syn_arrived, client, port, loopback)
        return errno.EINPROGRESS

    def transmit(
        self, sender: SimulatedSocket, size: int, arrival: Callable[..., None], *args: Any, acknowledges: bool = False
    ) -> None:
        """Send a segment to the other end of the sender's connection, after all earlier segments.

        :param size: in bytes; 0 for segments without data.
        :param arrival: called with ``args`` when the segment arrives.
        :param acknowledges: true for a segment that only acknowledges data.
        """
        if sender.held or sender.link.cut:
            sender.held.append(Segment(size, arrival, args, acknowledges))
            if sender not in self._blocked_senders:
                timeout_s = CONNECT_TIMEOUT_S if sender.connecting else DATA_TIMEOUT_S
                self._blocked_senders[sender] = self._scheduler.post(self._process, timeout_s, self._time_out, sender)
        else:
            self._send(sender, size, arrival, args)

    def _send(
        self,
        sender: SimulatedSocket,
        size: int,
        arrival: Callable[..., None],
        args: tuple[Any, ...],
        delay_s: float = 0.0,
    ) -> None:
        link = sender.link
        departure_s = self._scheduler.now_s
        if link.bytes_per_s is not None:
            link.idle_from_s = departure_s = max(link.idle_from_s, departure_s) + size / link.bytes_per_s
        latency_s_min, latency_s_max = link.latency_s
        arrival_s = departure_s + latency_s_min + (latency_s_max - latency_s_min) * self.random.random() + delay_s
        if link.late_chance and self.random.random() < link.late_chance:
            arrival_s += EXTRA_DELAY_S_MAX ** self.random.random()
        if arrival_s < sender.last_arrival_s:
            arrival_s = sender.last_arrival_s
        sender.last_arrival_s = arrival_s
        self._scheduler.post_at(self._process, arrival_s, arrival, args)

    def _release(self, sender: SimulatedSocket) -> None:
        self._blocked_senders.pop(sender).cancel()
        segments = list(sender.held)
        sender.held.clear()
        extra_s = self.random.uniform(0.0, RETRANSMISSION_DELAY_S_MAX)
        for segment in segments:
            self._send(sender, segment.size, segment.arrival, segment.args, extra_s)

    def _time_out(self, sender: SimulatedSocket) -> None:
        del self._blocked_senders[sender]
        unanswered = sender.peer if all(segment.acknowledges for segment in sender.held) else sender
        sender.held.clear()
        if unanswered is not None:
            unanswered.reset(errno.ETIMEDOUT)

    # --- the handshake ---

    def _syn_arrived(self, client: SimulatedSocket, port: int, loopback: bool) -> None:
        target = client.destination
        listener = self._listening.get((target, port))
        if listener is not None and listener.local[0] in LOOPBACK_NAMES and not loopback:
            listener = None
        if listener is not None and len(listener.backlog) >= listener.backlog_max:
            self._scheduler.post(self._process, SYN_RETRY_S, self._syn_arrived, client, port, loopback)
            return
        server = self.socket(target)
        server.local = (client.remote[0] if client.remote else target, port)
        server.remote = client.local
        server.set_destination(client.host)
        server.peer = client
        if listener is None:
            self.transmit(server, 0, client.reset, errno.ECONNREFUSED)
        else:
            self.transmit(server, 0, self._syn_ack_arrived, client, server, listener)

    def _syn_ack_arrived(self, client: SimulatedSocket, server: SimulatedSocket, listener: SimulatedSocket) -> None:
        if client.closed:
            return
        self.transmit(client, 0, self._ack_arrived, server, listener)
        client.establish(server)

    def _ack_arrived(self, server: SimulatedSocket, listener: SimulatedSocket) -> None:
        server.connected = True
        if listener.closed:
            server.abort()
        else:
            listener.enqueue(server)

    def _ephemeral_port(self, host: str) -> int:
        port = self._hosts[host]
        while (host, port) in self._listening:
            port = port + 1 if port < LAST_EPHEMERAL_PORT else FIRST_EPHEMERAL_PORT
        self._hosts[host] = port + 1 if port < LAST_EPHEMERAL_PORT else FIRST_EPHEMERAL_PORT
        return port
