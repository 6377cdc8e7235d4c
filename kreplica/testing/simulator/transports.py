"""Twisted's ports, connectors and client connections on simulated sockets and host names."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution
from zope.interface import implementer

from kreplica.testing.simulator.network import Network
from kreplica.testing.simulator.sockets import SimulatedSocket


class SocketOwner(Protocol):
    """The part of a simulated reactor that its ports and connections use in addition to Twisted's interfaces."""

    def new_socket(self) -> SimulatedSocket: ...

    def adopt(self, connection: SimulatedSocket) -> None: ...

    def log_failure(self) -> None: ...


class SimulatedPort(tcp.Port):
    """Twisted's port, listening on a simulated host."""

    simulated_reactor: SocketOwner

    def __init__(self, port: int, factory: Any, backlog: int, interface: str, reactor: SocketOwner) -> None:
        self.simulated_reactor = reactor
        super().__init__(port, factory, backlog, interface, reactor)

    def createInternetSocket(self) -> Any:
        return self.simulated_reactor.new_socket()

    def doRead(self) -> None:
        # Twisted's own doRead calls the operating system with real file descriptors, which simulated sockets
        # do not have.
        connection: Any
        connection, address = self.socket.accept()
        self.simulated_reactor.adopt(connection)
        try:
            protocol = self.factory.buildProtocol(IPv4Address("TCP", *address))  # type: ignore[union-attr]
            if protocol is None:
                connection.close()
                return
            number = self.sessionno
            self.sessionno += 1
            protocol.makeConnection(self.transport(connection, protocol, address, self, number, self.reactor))
        except Exception:
            self.simulated_reactor.log_failure()  # as on the real reactor, the port keeps listening


class SimulatedClient(tcp.Client):
    connector: SimulatedConnector

    def createInternetSocket(self) -> Any:
        return self.connector.simulated_reactor.new_socket()


class SimulatedConnector(tcp.Connector):
    def __init__(
        self, host: str, port: int, factory: Any, timeout: float, bindAddress: Any, reactor: SocketOwner
    ) -> None:
        self.simulated_reactor = reactor
        super().__init__(host, port, factory, timeout, bindAddress, reactor)

    def _makeTransport(self) -> tcp.Client:
        return SimulatedClient(  # type: ignore[no-untyped-call]
            self.host, self.port, self.bindAddress, self, self.simulated_reactor
        )


@implementer(IHostResolution)
class Resolution:
    """Lookup of a host name that is its own address."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """Do nothing: the lookup has already ended."""


@implementer(IHostnameResolver)
class NameResolver:
    """Resolver that maps each simulated host's name to itself; other names have no address."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def resolveHostName(
        self,
        resolutionReceiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        resolution = Resolution(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        if self._network.has_host(hostName):
            resolutionReceiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        resolutionReceiver.resolutionComplete()
        return resolution
