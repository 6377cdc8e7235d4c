"""Links between processes, cut and delayed by a proxy or by the kernel."""

import socket
import sys
import time
from contextlib import closing

import pytest

from tests.support.links import CLIENTS, COORDINATOR, cut
from tests.support.namespaces import NamespaceLinks, are_permitted
from tests.support.proxy import ProxyLinks
from tests.support.server_process import ServerProcess, free_ports

QUIET_S = 0.2
DELAY_S = 0.15

ECHO = """
import socketserver, sys

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)

socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), Echo)
server.daemon_threads = True
print("serving", flush=True)
server.serve_forever()
"""


class EchoProcess(ServerProcess):
    """A server that echoes all data to its client."""

    def __init__(self, directory, port, host="127.0.0.1", command_prefix=()):
        super().__init__(directory, b"serving")
        self.port = port
        self.host = host
        self.command_prefix = command_prefix

    def command(self):
        return [*self.command_prefix, sys.executable, "-c", ECHO, self.host, str(self.port)]


@pytest.fixture
def links():
    """Links between two brokers and a coordinator."""
    (port,) = free_ports(1)
    with ProxyLinks(f"127.0.0.1:{port}/kafka", 2) as links:
        yield links


@pytest.fixture
def echo(links, tmp_path):
    """An echo server in place of broker 1."""
    with EchoProcess(tmp_path, links.places[1].port) as process:
        yield process


def connect(port, host="127.0.0.1", timeout_s=5.0):
    return closing(socket.create_connection((host, port), timeout_s))


def receive_from(connection, timeout_s=5.0):
    """Return the next data received, or None on a timeout."""
    connection.settimeout(timeout_s)
    try:
        return connection.recv(65536)
    except TimeoutError:
        return None


def test_links_carry_everything(links, echo):
    """A link carries any amount of data from its advertised port to the broker, and the responses back."""
    with connect(links.places[1].advertised_port) as client:
        data = bytes(range(256)) * 4096
        client.sendall(data[: len(data) // 2])
        client.sendall(data[len(data) // 2 :])
        received = b""
        while len(received) < len(data):
            received += receive_from(client)
        assert received == data


def test_each_broker_has_a_link_to_the_coordinator(links):
    """Each broker has its own link to the coordinator; the znode path in the connection string is kept."""
    servers = {links.places[broker_id].zookeeper for broker_id in (1, 2)}
    assert len(servers) == 2
    assert all(server.endswith("/kafka") for server in servers)


def test_a_cut_link_neither_delivers_nor_refuses(links, echo):
    """While a link is cut, old and new connections stay open without data; the data arrives after healing."""
    with connect(links.places[1].advertised_port) as client, connect(links.places[1].advertised_port) as idle:
        client.sendall(b"one")
        assert receive_from(client) == b"one"
        cut(links, {CLIENTS}, {1})
        client.sendall(b"two")
        with connect(links.places[1].advertised_port) as late:
            late.sendall(b"late")
            assert receive_from(client, QUIET_S) is None
            assert receive_from(late, QUIET_S) is None
            assert receive_from(idle, QUIET_S) is None
            links.heal()
            assert receive_from(client) == b"two"
            assert receive_from(late) == b"late"


def test_one_way(links, echo):
    """If only the return path is cut, requests arrive; their responses arrive after healing."""
    with connect(links.places[1].advertised_port) as client:
        client.sendall(b"one")
        assert receive_from(client) == b"one"
        links.cut_one_way({1}, {CLIENTS})
        client.sendall(b"two")
        assert receive_from(client, QUIET_S) is None
        links.heal()
        assert receive_from(client) == b"two"


def test_the_end_of_a_process_behind_a_cut_is_not_noticed(links, echo):
    """A connection whose peer was killed behind a cut stays half-open until the link is healed."""
    with connect(links.places[1].advertised_port) as client:
        client.sendall(b"one")
        assert receive_from(client) == b"one"
        cut(links, {CLIENTS}, {1})
        echo.kill()
        assert receive_from(client, QUIET_S) is None
        links.heal()
        assert receive_from(client) == b""


def test_a_stopped_broker_closes_connections(links):
    """A connection to a broker that is not running is closed at once."""
    with connect(links.places[2].advertised_port) as client:
        assert receive_from(client) == b""


def test_slow(links, echo):
    """A response takes the latency of both directions; many at once take no longer than one."""
    links.slow({CLIENTS}, {1}, DELAY_S)
    with connect(links.places[1].advertised_port) as client:
        begin = time.monotonic()
        for _ in range(10):
            client.sendall(b"x")
        received = b""
        while len(received) < 10:
            received += receive_from(client)
        assert 2 * DELAY_S <= time.monotonic() - begin < 10 * DELAY_S


def test_the_source_of_a_connection_is_found_by_its_process(links, echo, tmp_path):
    """A cut between two brokers does not affect clients: each connection belongs to the process that opened it."""
    place = links.places[1]
    relay = f"""
import socket
s = socket.create_connection(("127.0.0.1", {place.advertised_port}))
s.sendall(b"x")
s.recv(1)
print("serving", flush=True)
s.sendall(b"y")
s.recv(1)
print("received", flush=True)
"""

    class Relay(ServerProcess):
        def command(self):
            return [sys.executable, "-c", relay]

    other = Relay(tmp_path, b"serving")
    links.attach(lambda: {other.pid: 2})
    cut(links, {2}, {1, COORDINATOR})
    other.launch()
    try:
        with connect(place.advertised_port) as client:
            client.sendall(b"me")
            assert receive_from(client) == b"me"
            time.sleep(QUIET_S)
            assert "serving" not in other.output
            links.heal()
            other.wait_until_ready(5)
            assert other.wait(5) == 0
            assert "received" in other.output
    finally:
        other.kill()


@pytest.mark.needs_program("ip")
@pytest.mark.parametrize("one_way", [None, (CLIENTS, 1), (1, CLIENTS)], ids=["both ways", "there", "back"])
def test_the_kernel_cuts_a_link(tmp_path, one_way):
    """A cut between network namespaces neither delivers nor rejects data; it arrives after healing."""
    if not are_permitted():
        pytest.skip("network namespaces are not permitted here")
    with NamespaceLinks(1) as links:
        place = links.places("unused")[1]
        echo = EchoProcess(tmp_path, place.port, place.host, place.command_prefix)
        with echo, connect(place.port, place.host) as to:
            to.sendall(b"one")
            assert receive_from(to) == b"one"
            if one_way is None:
                cut(links, {CLIENTS}, {1})
            else:
                links.cut_one_way({one_way[0]}, {one_way[1]})
            to.sendall(b"two")
            assert receive_from(to, QUIET_S) is None
            with pytest.raises(TimeoutError):
                connect(place.port, place.host, QUIET_S)
            links.heal()
            assert receive_from(to) == b"two"
