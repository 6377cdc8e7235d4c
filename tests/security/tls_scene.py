"""Brokers that use TLS between each other and to their clients, with real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kreplica.client import ClientOptions, Cluster, default_runtime, secured_endpoints
from kreplica.runtime import real_runtime
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from tests.support.real_reactor import run

TIMEOUT_S = 20


def settings(broker_id: int, directory: Path, certificates: Path, connect: str, more: str = "") -> BrokerSettings:
    """Return the settings of a broker; the listener CLIENTS accepts only clients with certificates."""
    return BrokerSettings.from_text(f"""
        broker.id={broker_id}
        listeners=SSL://127.0.0.1:0,CLIENTS://127.0.0.1:0
        listener.security.protocol.map=SSL:SSL,CLIENTS:SSL
        security.inter.broker.protocol=SSL
        ssl.keystore.type=PEM
        ssl.keystore.location={certificates}/broker.pem
        ssl.truststore.type=PEM
        ssl.truststore.location={certificates}/ca.pem
        listener.name.clients.ssl.client.auth=required
        listener.name.clients.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/,DEFAULT
        log.dirs={directory}/{broker_id}
        zookeeper.connect={connect}
        {more}
    """)


def config(certificates: Path, *, client: str | None = None, authority: str = "ca.pem") -> dict[str, str]:
    """Return a client's configuration, as for a Java client."""
    client_config = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{certificates}/{authority}",
    }
    if client is not None:
        client_config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"{certificates}/{client}.pem"}
    return client_config


class Brokers:
    """Running brokers, and their clients.

    :ivar trusted: certificates that clients trust.
    """

    def __init__(self, reactor: Any, brokers: list[Broker], certificates: Path) -> None:
        self.reactor = reactor
        self.brokers = brokers
        self.certificates = certificates
        self.trusted = certificates / "ca.pem"

    def address(self, listener_name: str, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.brokers[0]._ports[listener_name]}"

    def cluster(self, listener_name: str, client_config: dict[str, str], host: str = "127.0.0.1") -> Cluster:
        runtime = default_runtime(self.reactor, endpoint=secured_endpoints(client_config))
        options = ClientOptions(connect_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S)
        return Cluster(self.address(listener_name, host), options=options, runtime=runtime)

    @property
    def users(self) -> set[str]:
        servers = [broker.server for broker in self.brokers]
        return {each.user for server in servers if server is not None for each in server.resources.connections}


def with_brokers(
    count: int,
    directory: Path,
    certificates: Path,
    connect: str,
    scenario: Any,
    more: str = "",
    of: Any = settings,
) -> None:
    """Run brokers, and a test coroutine with them, on the real reactor."""

    async def main() -> None:
        from twisted.internet import reactor

        brokers = [
            Broker(real_runtime(reactor), of(number, directory, certificates, connect, more))
            for number in range(1, count + 1)
        ]
        try:
            for broker in brokers:
                await broker.start()
            await scenario(Brokers(reactor, brokers, certificates))
        finally:
            for broker in brokers:
                await broker.stop()
            for broker in brokers:
                broker.runtime.offload.stop()

    run(main(), 120, check_left_behind=False)
