"""Listener that reports to load balancers, in HAProxy's agent-check protocol, whether this broker can serve clients."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import Factory, Protocol
from zope.interface import implementer

from kreplica.interfaces import BrokerView, IExtraListener, PluginContext


@implementer(IExtraListener)
class AgentCheck:
    """Sends ``up``, or ``down`` with the reasons, on each new connection and closes it.

    :ivar port: the bound port, once started.
    """

    def __init__(self, context: PluginContext) -> None:
        """Create the listener.

        :raise ValueError: ``listen`` is not host:port.
        """
        text = context.settings.get("listen", "127.0.0.1:0")
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"listen: {text!r} is not HOST:PORT")
        self._address = (host, int(port))
        self._reactor = context.runtime.reactor
        self._factory = _StateFactory(context.broker)
        self._listening: Any = None

    @property
    def port(self) -> int:
        return int(self._listening.getHost().port)

    async def start(self) -> None:
        host, port = self._address
        self._listening = self._reactor.listenTCP(port, self._factory, interface=host)

    async def stop(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            await maybeDeferred(listening.stopListening)


class _StateFactory(Factory):
    noisy = False

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def buildProtocol(self, addr: object) -> Protocol:
        return _StateProtocol(self._broker)


class _StateProtocol(Protocol):
    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def connectionMade(self) -> None:
        reasons = self._broker.not_ready()
        text = f"down #{'; '.join(reasons)}" if reasons else "up"
        transport: Any = self.transport
        transport.write(text.encode() + b"\n")
        transport.loseConnection()
