"""The lean polling reactor behaves like Twisted's: data, lost connections, and exceptions of protocols."""

import pytest
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock
from twisted.python import log

from kreplica.runtime.lean_polling import install_lean_polling

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
    """Sends data, and closes the connection when all of it was echoed."""

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
    assert install_lean_polling(reactor)
    reactor.callLater(20, reactor.stop)
    yield reactor
    reactor.disconnectAll()


def run(reactor, sends):
    """Let a client send data to an echo server; return the received data, and how both connections ended."""
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


def test_data_is_echoed(reactor):
    """There are many connections, and both sides are notified of the end."""
    received, ended = run(reactor, LARGE)
    assert received == LARGE
    assert [reason.check(ConnectionDone) for reason in ended] == [ConnectionDone] * 2


def test_exception_ends_its_connection_only(reactor):
    """The exception is logged, and the event loop continues."""
    events = []
    log.addObserver(events.append)
    try:
        received, ended = run(reactor, b"fail")
    finally:
        log.removeObserver(events.append)
    assert received == b""
    assert ended[0].type is ZeroDivisionError
    assert any(event.get("isError") and event["failure"].check(ZeroDivisionError) for event in events)


def test_other_reactors_are_not_changed():
    """The other reactors do not use epoll."""
    assert not install_lean_polling(Clock())
    reactor = SelectReactor()
    assert not install_lean_polling(reactor)
    reactor.disconnectAll()
