"""Metrics reporter that sends values to a statsd server over UDP, as gauges with tags.

kreplica.metrics.reporters=statsd
kreplica.plugin.statsd.address=127.0.0.1:8125
kreplica.plugin.statsd.names=kafka_server_*,kreplica_controller_*

Each line has the form ``NAME:VALUE|g|#label:value,label:value``, the format of Datadog's agent, Telegraf and Vector.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.protocol import DatagramProtocol
from zope.interface import implementer

from kreplica.interfaces import Family, Histogram, IMetricsReporter, Plugin, PluginContext

DATAGRAM_BYTES_MAX = 1400
"""Maximum size of a datagram, which fits into one IP packet on common networks."""

statsd = Plugin(
    "statsd",
    IMetricsReporter,
    "kreplica.plugins.statsd:Statsd",
    "Sends metrics to a statsd server.",
    {
        "address": "The IP address and port of the server, as host:port.",
        "names": "Metric names, separated by commas; a * at the end matches any suffix.",
    },
)


@implementer(IMetricsReporter)
class Statsd:
    """Sends gauges.  Histograms are omitted, because statsd computes its own."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: the address is invalid, or the reactor has no UDP."""
        host, colon, port = context.settings.get("address", "127.0.0.1:8125").rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError("address: HOST:PORT is expected")
        self._address = (host, int(port))
        names = [name.strip() for name in context.settings.get("names", "*").split(",")]
        self._names = frozenset(names)
        self._starts = tuple(name[:-1] for name in names if name.endswith("*"))
        self._broker_id = context.broker.broker_id
        self._reactor: Any = context.runtime.reactor
        if not hasattr(self._reactor, "listenUDP"):
            raise ValueError("this reactor has no UDP")

    async def report(self, families: AsyncIterator[Family | Histogram]) -> None:
        port = self._reactor.listenUDP(0, DatagramProtocol(), interface=self._address[0] and "0.0.0.0")
        try:
            datagram = b""
            async for family in families:
                if isinstance(family, Family) and self._wants(family.name):
                    for line in self._lines(family):
                        if len(datagram) + len(line) > DATAGRAM_BYTES_MAX:
                            port.write(datagram, self._address)
                            datagram = b""
                        datagram += line
            if datagram:
                port.write(datagram, self._address)
        finally:
            port.stopListening()

    def _wants(self, name: str) -> bool:
        return name in self._names or name.startswith(self._starts)

    def _lines(self, family: Family) -> list[bytes]:
        lines = []
        for values, value in family.samples:
            pairs = [("broker", str(self._broker_id)), *zip(family.labels, values, strict=True)]
            labels = ",".join(f"{name}:{text}" for name, text in pairs)
            lines.append(f"{family.name}:{value:g}|g|#{labels}\n".encode())
        return lines
