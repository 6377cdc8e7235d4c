"""A reactor that polls leanly does what a stock one does: bytes come and go, ends are told, faults end a connection."""

import pytest
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.python import log

from kreplica.runtime.lean_polling import poll_leanly

epollreactor = pytest.importorskip("twisted.internet.epollreactor")
LARGE = b"x" * 3_000_000


class Echo(Protocol):
    def dataReceived(self, data):
        if data.startswith(b"fail"):
            raise ZeroDivisionError
        self.transport.write(data)

    def connectionLost(self, reason):
        self.factory.end(reason)


class Asking(Protocol):
    """Sends, and closes when all came back."""

    def connectionMade(self):
        self.received = b""
        self.transport.write(self.factory.sends)

    def dataReceived(self, data):
        self.received += data
        if len(self.received) == len(self.factory.sends):
            self.transport.loseConnection()

    def connectionLost(self, reason):
        self.factory.end(reason)
        self.factory.received = self.received


@pytest.fixture
def reactor():
    reactor = epollreactor.EPollReactor()
    assert poll_leanly(reactor)
    reactor.callLater(20, reactor.stop)
    yield reactor
    reactor.disconnectAll()


def run(reactor, sends):
    """A client sends that to an echo; what came back, and how both connections ended."""
    ended = []

    def end(reason):
        ended.append(reason)
        if len(ended) == 2:
            reactor.stop()

    echo, asking = Factory.forProtocol(Echo), Factory.forProtocol(Asking)
    for factory in (echo, asking):
        factory.noisy, factory.end, factory.sends = False, end, sends
    port = reactor.listenTCP(0, echo, interface="127.0.0.1")
    TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port).connect(asking)
    reactor.run(installSignalHandlers=False)
    return asking.received, ended


def test_bytes_come_and_go(reactor):
    """Many of them, and both sides are told of the end."""
    received, ended = run(reactor, LARGE)
    assert received == LARGE
    assert [reason.check(ConnectionDone) for reason in ended] == [ConnectionDone] * 2


def test_a_fault_ends_its_connection_only(reactor):
    """It is logged, and the loop goes on."""
    events = []
    log.addObserver(events.append)
    try:
        received, ended = run(reactor, b"fail")
    finally:
        log.removeObserver(events.append)
    assert received == b""
    assert ended[0].type is ZeroDivisionError
    assert any(event.get("isError") and event["failure"].check(ZeroDivisionError) for event in events)


def test_other_reactors_stay_as_they_are():
    """They have no epoll."""
    assert not poll_leanly(Clock())
    reactor = SelectReactor()
    assert not poll_leanly(reactor)
    reactor.disconnectAll()
