"""The lean polling reactor behaves like Twisted's: data, lost connections, and exceptions in protocols."""

import pytest
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.python import log

from kreplica.runtime.lean_polling import busy_polling, install_lean_polling

epollreactor = pytest.importorskip("twisted.internet.epollreactor")
LARGE = b"x" * 3_000_000


class Echo(Protocol):
    def dataReceived(self, data):
        if data.startswith(b"fail"):
            raise ZeroDivisionError
        self.transport.write(data)

    def connectionLost(self, reason):
        self.factory.end(reason)


class EchoClient(Protocol):
    """Sends data, and closes the connection when all of it has been echoed."""

    def connectionMade(self):
        self.received = b""
        self.transport.write(self.factory.payload)

    def dataReceived(self, data):
        self.received += data
        if len(self.received) == len(self.factory.payload):
            self.transport.loseConnection()

    def connectionLost(self, reason):
        self.factory.end(reason)
        self.factory.received = self.received


@pytest.fixture(params=[0.0, 0.001], ids=["sleeping", "busy polling"])
def reactor(request):
    reactor = epollreactor.EPollReactor()
    assert install_lean_polling(reactor, request.param)
    reactor.callLater(20, reactor.stop)
    yield reactor
    reactor.disconnectAll()


def run(reactor, payload):
    """Let a client send data to an echo server; return the received data and the reasons why both connections ended."""
    reasons = []

    def end(reason):
        reasons.append(reason)
        if len(reasons) == 2:
            reactor.stop()

    echo, client = Factory.forProtocol(Echo), Factory.forProtocol(EchoClient)
    for factory in (echo, client):
        factory.noisy, factory.end, factory.payload = False, end, payload
    port = reactor.listenTCP(0, echo, interface="127.0.0.1")
    TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port).connect(client)
    reactor.run(installSignalHandlers=False)
    return client.received, reasons


def test_data_is_echoed(reactor):
    """A large amount of data is echoed, and both sides are notified of the end."""
    received, reasons = run(reactor, LARGE)
    assert received == LARGE
    assert [reason.check(ConnectionDone) for reason in reasons] == [ConnectionDone] * 2


def test_exception_ends_its_connection_only(reactor):
    """An exception in a protocol is logged, and the event loop continues."""
    events = []
    log.addObserver(events.append)
    try:
        received, reasons = run(reactor, b"fail")
    finally:
        log.removeObserver(events.append)
    assert received == b""
    assert reasons[0].type is ZeroDivisionError
    assert any(event.get("isError") and event["failure"].check(ZeroDivisionError) for event in events)


def test_other_reactors_are_not_changed():
    """Reactors without epoll are not changed."""
    assert not install_lean_polling(Clock())
    reactor = SelectReactor()
    assert not install_lean_polling(reactor)
    reactor.disconnectAll()


class Sockets:
    """Poll function whose events arrive at given times of a clock; each poll without sleeping takes 10 us."""

    def __init__(self, *arrivals_s):
        self.arrivals_s = list(arrivals_s)
        self.now_s = 0.0
        self.sleeps = []
        self.polls = 0

    def seconds(self):
        return self.now_s

    def poll(self, timeout_s, count):
        self.now_s += 0.00001
        self.polls += 1
        if timeout_s:
            end_s = self.arrivals_s[0] if timeout_s < 0 else min(self.now_s + timeout_s, self.arrivals_s[0])
            self.now_s = max(self.now_s, end_s)
            self.sleeps.append(timeout_s)
        if self.now_s < self.arrivals_s[0]:
            return []
        del self.arrivals_s[0]
        return [(1, count)]


def test_busy_polling_finds_an_event_without_sleeping():
    sockets = Sockets(0.0005, 0.001)
    wait = busy_polling(sockets.poll, 0.001, sockets.seconds)
    assert wait(-1, 7) == [(1, 7)]
    assert wait(5.0, 7) == [(1, 7)]
    assert sockets.sleeps == []


def test_busy_polling_ends_when_a_timer_is_due():
    """The time spent on busy polling is part of the timeout."""
    sockets = Sockets(1.0)
    wait = busy_polling(sockets.poll, 0.001, sockets.seconds)
    assert wait(0.0004, 7) == []
    assert sockets.now_s == pytest.approx(0.0004, abs=0.00003)
    assert wait(0.0024, 7) == []
    assert sockets.now_s == pytest.approx(0.0028, abs=0.00005)
    assert sockets.sleeps == [pytest.approx(0.0014, abs=0.00003)]


def test_busy_polling_is_suspended_while_waits_are_long():
    """An idle loop sleeps immediately after a few long waits, and polls again after a short one."""
    sockets = Sockets(1, 2, 3, 4, 5, 5.0005, 5.0009)
    wait = busy_polling(sockets.poll, 0.001, sockets.seconds)
    polls = []
    for _ in range(7):
        before = sockets.polls
        wait(-1, 7)
        polls.append(sockets.polls - before)
    assert polls[0] == pytest.approx(100, abs=3)
    assert polls[1] == pytest.approx(50, abs=3)
    assert polls[4:6] == [1, 1], "it sleeps immediately, and this wait was short"
    assert polls[6] > 10
    assert len(sockets.sleeps) == 6
