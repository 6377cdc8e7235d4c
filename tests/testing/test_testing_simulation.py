"""Simulated hosts that are killed, paused, disconnected or slow, and determinism by seed."""

from __future__ import annotations

import time
from random import Random
from socket import MSG_MORE
from typing import Any
from zlib import crc32

import pytest
from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.interfaces import (
    IDelayedCall,
    IReactorFDSet,
    IReactorFromThreads,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from twisted.web.client import Agent, readBody
from twisted.web.resource import Resource
from twisted.web.server import Site
from zope.interface.verify import verifyObject

from kreplica.testing.simulator.network import DATA_TIMEOUT_S
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.simulator.simulation import START_MS, Host, Simulation


class Peer(Protocol):
    """Protocol that records received data and the reason for the loss of its connection."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: type[BaseException] | None = None

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        assert reason is not None
        self.lost = type(reason.value)

    def say(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Echo(Peer):
    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        self.say(data)


class Listener(Factory):
    def __init__(self, protocol: type[Peer] = Peer) -> None:
        self.made: list[Peer] = []
        self._protocol = protocol

    def buildProtocol(self, addr: Any) -> Peer:
        self.made.append(self._protocol())
        return self.made[-1]


def open_connection(
    simulation: Simulation, client: Host, server: Host, protocol: type[Peer] = Peer
) -> tuple[Peer, Peer]:
    """Open a connection, and return (client's end, server's end)."""
    listener = Listener(protocol)
    port = server.reactor.listenTCP(0, listener)
    endpoint = TCP4ClientEndpoint(client.reactor, server.name, port.getHost().port)
    end = simulation.run_until(endpoint.connect(Factory.forProtocol(Peer)))
    simulation.run_until(lambda: bool(listener.made and listener.made[0].transport))
    return end, listener.made[0]


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(seed=7)


@pytest.fixture
def a(simulation: Simulation) -> Host:
    return simulation.host("a")


@pytest.fixture
def b(simulation: Simulation) -> Host:
    return simulation.host("b")


class TestDeterminism:
    def trace(self, seed: int) -> str:
        """Run timers, TCP, faults, offloaded work and disk access, and return the trace."""
        lines: list[str] = []
        simulation = Simulation(seed, lines.append)
        hosts = [simulation.host(name) for name in "abc"]
        ends = [open_connection(simulation, hosts[0], host, Echo)[0] for host in hosts[1:]]
        file = hosts[0].disk.open("/data/log", create=True)

        def tick() -> None:
            for end in ends:
                end.say(hosts[0].runtime.random.randbytes(1000))
            done = hosts[0].offload.run(file.write_at, file.size(), [b"x" * 100])
            done.addCallback(lambda size: lines.append(f"wrote {size} of {file.size()}"))

        loop = LoopingCall(tick)
        loop.clock = hosts[0].reactor
        loop.start(0.01)
        simulation.run(0.1)
        simulation.network.cut("a", "b")
        simulation.run(0.1)
        simulation.network.heal()
        hosts[2].kill()
        simulation.run(3)
        lines += [f"{crc32(end.received)} {len(end.received)} {end.lost}" for end in ends]
        hosts[0].power_loss()
        names = hosts[0].disk.list_directory("/data")
        lines += [f"{name} {hosts[0].disk.read_file('/data/' + name)!r}" for name in names]
        return "\n".join(lines)

    def test_a_seed_determines_the_run(self) -> None:
        """The same seed gives the same trace, byte for byte; another seed gives another trace."""
        first = self.trace(1)
        assert len(first) > 10_000
        assert self.trace(1) == first
        assert self.trace(2) != first

    def test_hosts_have_separate_random_numbers(self) -> None:
        """Random numbers drawn by a host affect neither other hosts nor its own next process."""
        first, second = Simulation(1), Simulation(1)
        first.host("a").runtime.random.random()
        assert first.host("b").runtime.random.random() == second.host("b").runtime.random.random()
        first.host("a").kill()
        second.host("a").kill()
        assert first.host("a").runtime.random.random() == second.host("a").runtime.random.random()
        assert first.host("a").runtime.random.random() != first.host("b").runtime.random.random()


def test_the_reactor_implements_its_interfaces(a: Host) -> None:
    """The reactor provides the interfaces that it declares, with the signatures that Twisted requires."""
    for interface in (IReactorTime, IReactorTCP, IReactorFDSet, IReactorFromThreads, IReactorPluggableNameResolver):
        assert verifyObject(interface, a.reactor)
    assert verifyObject(IDelayedCall, a.reactor.callLater(1, print))


class TestTime:
    def test_each_call_sees_its_own_time(self, simulation: Simulation, a: Host, b: Host) -> None:
        """All hosts share one clock, which advances from event to event."""
        seen = []
        for host, delay_s in ((a, 0.3), (b, 0.1), (a, 0.2)):
            host.reactor.callLater(delay_s, lambda host=host: seen.append((host.name, host.reactor.seconds())))
        simulation.run(1)
        assert seen == [("b", 0.1), ("a", 0.2), ("a", 0.3)]
        assert simulation.now_s == 1

    def test_a_step_is_one_event(self, simulation: Simulation, a: Host) -> None:
        """step() handles the next event, however far in the future, and returns True if there was one."""
        seen: list[int] = []
        a.reactor.callLater(1000, seen.append, 1)
        a.reactor.callLater(1000, seen.append, 2)
        assert simulation.step()
        assert seen == [1]
        assert simulation.step()
        assert not simulation.step()
        assert simulation.now_s == 1000

    def test_the_error_of_a_timeout_lists_pending_events(self, simulation: Simulation, a: Host) -> None:
        """If a condition is not met in time, the error lists the pending events."""
        a.reactor.callLater(100, print)
        with pytest.raises(TimeoutError, match=r"of a#1 at 100\.0.*print"):
            simulation.run_until(Deferred(), timeout_s=10)
        with pytest.raises(TimeoutError, match="no event is left"):
            simulation.run_until(lambda: False, timeout_s=1000)

    def test_the_second_half_of_an_event_precedes_other_events(self, simulation: Simulation, a: Host, b: Host) -> None:
        """A follow-up that an event schedules runs before any other event, unless its process is paused."""
        seen: list[Any] = []
        scheduler, processes = simulation.scheduler, [Process("first"), Process("second"), Process("paused")]
        scheduler.after_event = lambda process: seen.append(process.name)

        def begin() -> None:
            scheduler.follow(processes[1], seen.append, "half")
            scheduler.follow(processes[1], seen.append, "after")
            seen.append("begun")

        scheduler.pause(processes[2])
        scheduler.post(processes[0], 1.0, scheduler.follow, processes[2], seen.append, "resumed")
        scheduler.post(processes[0], 1.0, begin)
        a.reactor.callLater(1.0, seen.append, "other")
        simulation.run(2)
        assert seen == ["first", "begun", "half", "second", "other", "a#1", "after", "second"]
        scheduler.resume(processes[2])
        simulation.run(1)
        assert seen[-2:] == ["resumed", "paused"]

    def test_a_failing_timer_fails_the_test(self, simulation: Simulation, a: Host) -> None:
        """An exception in a timer, which a real reactor only logs, ends the run."""
        a.reactor.callLater(1, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            simulation.run(2)

    def test_a_busy_loop_is_detected(self, simulation: Simulation, a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program that repeats a call without advancing time causes an error, not a hang."""
        monkeypatch.setattr("kreplica.testing.simulator.scheduler.EVENTS_AT_ONE_TIME_MAX", 1000)

        def again() -> None:
            a.reactor.callLater(0, again)

        again()
        with pytest.raises(RuntimeError, match="again repeats"):
            simulation.run(1)

    def test_postponed_timeouts_cost_no_memory(self, simulation: Simulation, a: Host) -> None:
        """Thousands of calls that are scheduled and cancelled, or repeatedly postponed, leave no garbage."""
        timeout = a.reactor.callLater(10, print)
        for _ in range(10_000):
            timeout.reset(10)
            a.reactor.callLater(5, print).cancel()
        assert a.reactor.getDelayedCalls() == [timeout]
        assert len(simulation.scheduler._queue) < 1000

    def test_wall_clocks_have_separate_errors(self) -> None:
        """Wall clocks differ by offset and drift between hosts, and can be made to jump; monotonic clocks cannot."""
        simulation = Simulation(1)
        late = simulation.host("late", clock_offset_ms=-5000)
        fast = simulation.host("fast", clock_drift=0.01)
        simulation.run(100)
        assert late.runtime.wall_clock_ms() == START_MS + 95_000
        assert fast.runtime.wall_clock_ms() == START_MS + 101_000
        late.clock.offset_ms = 1000
        assert late.runtime.wall_clock_ms() == START_MS + 101_000
        assert late.reactor.seconds() == fast.reactor.seconds() == 100
        fast.disk.write_file("/data/x", b"")
        assert fast.disk.status("/data/x").modified_ns == (START_MS + 101_000) * 1_000_000


class TestKill:
    def test_a_killed_host_falls_silent(self, simulation: Simulation, a: Host, b: Host) -> None:
        """After a kill, no timer or offloaded work runs, peers lose their connections, and the port is free again."""
        client, server = open_connection(simulation, a, b)
        b.reactor.callLater(1, lambda: pytest.fail("a timer of a killed process fired"))
        b.offload.run(lambda: pytest.fail("work of a killed process ran"))
        old, number = b.reactor, client.transport.getPeer().port  # type: ignore[union-attr]
        b.kill()
        simulation.run(2)
        assert client.lost is error.ConnectionDone
        assert server.lost is None
        assert old.getDelayedCalls() == []
        b.reactor.listenTCP(number, Listener())
        old.callLater(1, lambda: pytest.fail("a zombie set a timer"))
        with pytest.raises(error.CannotListenError):
            old.listenTCP(0, Listener())
        simulation.run(2)

    def test_unread_data_of_a_killed_process_causes_a_reset(self, simulation: Simulation, a: Host, b: Host) -> None:
        """If a process is killed before it has read all data, its peer sees a reset instead of a clean close."""
        client, _ = open_connection(simulation, a, b)
        b.pause()
        client.say(b"never read")
        simulation.run(1)
        b.kill()
        simulation.run(1)
        assert client.lost is error.ConnectionLost

    def test_data_written_before_a_kill_arrives(self, simulation: Simulation, a: Host, b: Host) -> None:
        """After a kill, the kernel still sends the data that the process has written."""
        client, server = open_connection(simulation, a, b)
        server.say(b"last words")
        simulation.run(0.000_01)
        b.kill()
        simulation.run(1)
        assert client.received == b"last words"

    def test_a_power_loss_sends_no_packets(self, simulation: Simulation, a: Host, b: Host) -> None:
        """After a power loss, peers keep half-open connections until they send data; unsynced data may be lost."""
        client, _ = open_connection(simulation, a, b)
        b.disk.write_file("/data/synced", b"s")
        b.disk.open("/data/unsynced", create=True).write_at(0, [b"u" * 100_000])
        b.power_loss()
        simulation.run(10_000)
        assert client.lost is None
        client.say(b"anybody?")
        simulation.run(1)
        assert client.lost is error.ConnectionLost
        assert b.disk.read_file("/data/synced") == b"s"
        assert b.disk.open_paths == []

    def test_a_paused_process_resumes(self, simulation: Simulation, a: Host, b: Host) -> None:
        """After a pause, overdue timers run in order; meanwhile the kernel accepts connections and buffers data."""
        client, server = open_connection(simulation, a, b)
        seen: list[str] = []
        b.reactor.callLater(1, seen.append, "first")
        b.reactor.callLater(2, seen.append, "second")
        cancelled = b.reactor.callLater(3, seen.append, "cancelled while paused")
        b.pause()
        client.say(b"hello")
        simulation.run(10)
        assert seen == []
        assert server.received == b""
        assert len(b.reactor.getDelayedCalls()) == 3
        cancelled.cancel()
        b.resume()
        simulation.run(1)
        assert seen == ["first", "second"]
        assert server.received == b"hello"

    def test_stopping_runs_the_shutdown_triggers(self, simulation: Simulation, a: Host, b: Host) -> None:
        """An orderly stop waits for each phase of shutdown triggers; then peers see a clean close."""
        client, _ = open_connection(simulation, a, b)
        seen: list[str] = []
        flushed: Deferred[None] = Deferred()
        b.reactor.addSystemEventTrigger("before", "shutdown", lambda: seen.append("before") or flushed)
        b.reactor.addSystemEventTrigger("during", "shutdown", seen.append, "during")
        removed = b.reactor.addSystemEventTrigger("after", "shutdown", seen.append, "removed")
        b.reactor.removeSystemEventTrigger(removed)
        b.reactor.callWhenRunning(seen.append, "running")
        simulation.run(1)
        b.reactor.stop()
        assert seen == ["running", "before"]
        with pytest.raises(error.ReactorNotRunning):
            b.reactor.stop()
        flushed.callback(None)
        assert seen == ["running", "before", "during"]
        simulation.run(1)
        assert client.lost is error.ConnectionDone


class TestNetwork:
    def test_a_partition_delays_data(self, simulation: Simulation, a: Host, b: Host) -> None:
        """No data arrives during a network partition; afterwards all of it arrives, once and in order."""
        client, server = open_connection(simulation, a, b)
        simulation.network.cut("a", "b")
        for number in range(100):
            client.say(b"%02d" % number)
            simulation.run(0.1)
        server.say(b"up")
        simulation.run(10)
        assert (server.received, client.received) == (b"", b"")
        simulation.network.heal("a", "b")
        simulation.run(3)
        assert server.received == b"".join(b"%02d" % number for number in range(100))
        assert client.received == b"up"

    def test_one_way(self, simulation: Simulation, a: Host, b: Host) -> None:
        """A link can be cut in one direction only."""
        client, server = open_connection(simulation, a, b)
        simulation.network.cut("a", "b", one_way=True)
        client.say(b"lost for now")
        server.say(b"heard")
        simulation.run(10)
        assert (server.received, client.received) == (b"", b"heard")

    def test_unacknowledged_data_ends_a_connection(self, simulation: Simulation, a: Host, b: Host) -> None:
        """A sender gives up after about fifteen minutes; an idle peer keeps a half-open connection."""
        client, server = open_connection(simulation, a, b)
        simulation.network.cut("a", "b")
        client.say(b"x")
        simulation.run(DATA_TIMEOUT_S - 1)
        assert client.lost is None
        simulation.run(2)
        assert client.lost is error.ConnectionLost
        assert server.lost is None
        simulation.network.heal()
        simulation.run(100)
        assert server.lost is None
        server.say(b"still there?")
        simulation.run(1)
        assert server.lost is error.ConnectionLost

    def test_partitions_have_separate_timeouts(self, simulation: Simulation, a: Host, b: Host) -> None:
        """Two partitions that are each shorter than the timeout do not end a connection."""
        client, server = open_connection(simulation, a, b)
        for _ in range(3):
            simulation.network.cut("a", "b")
            client.say(b"x")
            simulation.run(DATA_TIMEOUT_S * 0.6)
            simulation.network.heal()
            simulation.run(2)
        assert server.received == b"xxx"

    def test_a_full_window_survives_a_cut_return_path(self, simulation: Simulation, a: Host, b: Host) -> None:
        """While the return path is cut, a sender stalls when its window is full; after healing, all data arrives."""
        client, server = open_connection(simulation, a, b)
        simulation.network.cut("b", "a", one_way=True)
        client.say(bytes(1 << 20))
        simulation.run(10)
        assert 0 < len(server.received) < 1 << 20
        simulation.network.heal()
        simulation.run(10)
        assert len(server.received) == 1 << 20

    def test_connecting_through_a_partition(self, simulation: Simulation, a: Host, b: Host) -> None:
        """An attempt to connect through a partition times out, or succeeds once the link is healed."""
        simulation.network.isolate("b")
        listener = Listener()
        b.reactor.listenTCP(9092, listener)
        endpoint = TCP4ClientEndpoint(a.reactor, "b", 9092, timeout=5)
        with pytest.raises(error.TimeoutError):
            simulation.run_until(endpoint.connect(Factory.forProtocol(Peer)))
        assert simulation.now_s == pytest.approx(5)
        attempt = TCP4ClientEndpoint(a.reactor, "b", 9092).connect(Factory.forProtocol(Peer))
        simulation.run(2)
        simulation.network.heal("b")
        simulation.run_until(attempt, timeout_s=10)

    def test_dropped_connections(self, simulation: Simulation, a: Host, b: Host) -> None:
        """Dropped connections are lost at both ends, or at one end, in which case the other notices when it sends."""
        client, server = open_connection(simulation, a, b)
        simulation.network.drop_connections("a", "b")
        simulation.run(1)
        assert (client.lost, server.lost) == (error.ConnectionLost, error.ConnectionLost)
        client, server = open_connection(simulation, a, b)
        simulation.network.drop_connections("a", "b", one_way=True)
        simulation.run(1000)
        assert (client.lost, server.lost) == (error.ConnectionLost, None)
        server.say(b"?")
        simulation.run(1)
        assert server.lost is error.ConnectionLost

    def test_corked_data_shares_a_segment(self, simulation: Simulation, a: Host, b: Host) -> None:
        """Data sent with ``MSG_MORE`` waits for more data, or for the connection to be closed."""
        end, _ = open_connection(simulation, a, b)
        peer = simulation.network.connections("b", "a")[0]
        handle = end.transport.getHandle()  # type: ignore[union-attr]
        arrived: list[bytes] = []
        peer.arrive = lambda data: arrived.append(data)  # type: ignore[method-assign]
        for _ in range(100):
            assert handle.send(b"head", MSG_MORE) == 4
            simulation.run(1)
            handle.send(b"body")
            simulation.run(1)
        assert b"".join(arrived) == b"headbody" * 100
        assert 100 < len(arrived) < 150
        handle.send(b"last", MSG_MORE)
        handle.close()
        simulation.run(1)
        assert b"".join(arrived).endswith(b"bodylast")

    def test_a_slow_link(self, simulation: Simulation, a: Host, b: Host) -> None:
        """A megabyte over 100 kB/s takes ten seconds, over any number of connections."""
        first, second = open_connection(simulation, a, b), open_connection(simulation, a, b)
        simulation.network.slow("a", "b", latency_s=(0.05, 0.06), bytes_per_s=100_000)
        started_s = simulation.now_s
        for client, _ in (first, second):
            client.say(bytes(500_000))
        simulation.run_until(lambda: all(len(server.received) == 500_000 for _, server in (first, second)))
        assert simulation.now_s - started_s == pytest.approx(10, rel=0.05)

    def test_loopback_stays_on_its_host(self, simulation: Simulation, a: Host, b: Host) -> None:
        """Each host has its own 127.0.0.1, whose ports cannot be reached from other hosts."""
        a.reactor.listenTCP(9092, Listener(Echo), interface="127.0.0.1")
        endpoint = TCP4ClientEndpoint(a.reactor, "127.0.0.1", 9092)
        client = simulation.run_until(endpoint.connect(Factory.forProtocol(Peer)))
        assert client.transport.getHost().host == client.transport.getPeer().host == "127.0.0.1"
        for name in ("a", "127.0.0.1"):
            endpoint = TCP4ClientEndpoint(b.reactor, name, 9092)
            with pytest.raises(error.ConnectionRefusedError):
                simulation.run_until(endpoint.connect(Factory.forProtocol(Peer)))
        endpoint = TCP4ClientEndpoint(b.reactor, "nowhere", 9092)
        with pytest.raises(error.DNSLookupError):
            simulation.run_until(endpoint.connect(Factory.forProtocol(Peer)))

    @pytest.mark.filterwarnings("ignore:Using readBody:DeprecationWarning")
    def test_http(self, simulation: Simulation, a: Host, b: Host) -> None:
        """Twisted's web server and client work, with host names and connection pools."""

        class Hello(Resource):
            isLeaf = True

            def render_GET(self, request: Any) -> bytes:
                return b"hello from " + request.getRequestHostname()

        a.reactor.listenTCP(8080, Site(Hello(), reactor=a.reactor))

        async def get() -> bytes:
            response = await Agent(b.reactor).request(b"GET", b"http://a:8080/")
            body: bytes = await readBody(response)
            return body

        assert simulation.run_until(get()) == b"hello from a"


@pytest.mark.parametrize("seed", range(40))
def test_streams_are_reliable_under_faults(seed: int) -> None:
    """Despite cuts, pauses and slow links, the received data is a prefix of the sent data, and in the end complete."""
    simulation = Simulation(seed)
    network, random = simulation.network, simulation.random
    hosts = [simulation.host("a"), simulation.host("b")]
    ends = open_connection(simulation, *hosts)
    sent = [b"", b""]
    faults = [
        lambda: network.cut("a", "b", one_way=random.random() < 0.5),
        lambda: network.cut("b", "a", one_way=random.random() < 0.5),
        network.heal,
        lambda: random.choice(hosts).pause(),
        lambda: [host.resume() for host in hosts],
        lambda: network.slow("a", "b", (0.0, random.uniform(0.01, 1.0)), random.choice([None, 50_000.0])),
    ]
    for _ in range(100):
        random.choice(faults)()
        for index, end in enumerate(ends):
            data = random.randbytes(random.choice([0, 1, 100, 20_000]))
            end.say(data)
            sent[index] += data
        simulation.run(random.uniform(0.0, 0.5))
        assert sent[0].startswith(ends[1].received)
        assert sent[1].startswith(ends[0].received)
    network.heal()
    for host in hosts:
        host.resume()
    simulation.run(100)
    assert (ends[1].received, ends[0].received) == (sent[0], sent[1])


class TestOffload:
    def test_results_arrive_later_in_any_order(self, simulation: Simulation, a: Host) -> None:
        """Offloaded work runs and completes later, in any order; exceptions become failures."""
        seen: list[int] = []
        for number in range(20):
            a.offload.run(lambda number=number: number).addCallback(seen.append)
        failing = a.offload.run(lambda: 1 // 0)
        assert seen == []
        with pytest.raises(ZeroDivisionError):
            simulation.run_until(failing)
        simulation.run(1)
        assert sorted(seen) == list(range(20))
        assert seen != sorted(seen)

    def test_stopping_waits_for_running_work(self, simulation: Simulation, a: Host) -> None:
        """stop() waits until submitted work is done; new work is rejected."""
        done: list[int] = []
        answers = [a.offload.run(done.append, number) for number in range(5)]
        a.offload.stop()
        assert sorted(done) == list(range(5))
        simulation.run(1)
        assert all(answer.called for answer in answers)
        with pytest.raises(RuntimeError, match="stopped"):
            simulation.run_until(a.offload.run(print))


def test_events_are_fast() -> None:
    """Simple events take a few microseconds at most, so that long runs are affordable."""
    simulation = Simulation(1)
    reactor = simulation.host("a").reactor
    random = Random(1)

    def tick() -> None:
        reactor.callLater(random.random(), tick)

    for _ in range(100):
        tick()
    began = time.process_time()
    simulation.run(500)
    events_per_s = simulation.scheduler.event_count / (time.process_time() - began)
    assert events_per_s > 50_000  # a busy machine reaches this too; an idle one exceeds 500,000
