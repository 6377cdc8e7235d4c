"""Brokers whose clients and peers authenticate with SASL, with real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kreplica.client import ClientOptions, Cluster, default_runtime, secured_endpoints
from kreplica.client.connection import connect
from kreplica.runtime import Runtime, real_runtime
from kreplica.runtime.pause import pause
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.wire.messages import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from tests.support.real_reactor import run

RECORDS = 50
TIMEOUT_S = 20
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS = {"admin": "planted-secret-1", "alice": "planted-secret-2", "bob": "planted-secret-3"}
USERS = f'user_admin="{PASSWORDS["admin"]}" user_alice="{PASSWORDS["alice"]}"'
SHA_256, SHA_512 = 1, 2
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, AUTHENTICATION_FAILED = 33, 34, 58


def settings(
    broker_id: int, directory: Path, certificates: Path, connect_string: str, more: str = ""
) -> BrokerSettings:
    jaas = f'{PLAIN_LOGIN} required username="admin" password="{PASSWORDS["admin"]}" {USERS};'
    return BrokerSettings.from_text(f"""
        broker.id={broker_id}
        listeners=SASL_SSL://127.0.0.1:0,LOCAL://127.0.0.1:0,SHORT://127.0.0.1:0
        listener.security.protocol.map=SASL_SSL:SASL_SSL,LOCAL:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT
        security.inter.broker.protocol=SASL_SSL
        sasl.mechanism.inter.broker.protocol=PLAIN
        sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
        listener.name.sasl_ssl.plain.sasl.jaas.config={jaas}
        listener.name.local.plain.sasl.jaas.config={jaas}
        listener.name.short.plain.sasl.jaas.config={jaas}
        listener.name.short.sasl.enabled.mechanisms=PLAIN
        listener.name.short.connections.max.reauth.ms=600
        ssl.keystore.type=PEM
        ssl.keystore.location={certificates}/broker.pem
        ssl.truststore.type=PEM
        ssl.truststore.location={certificates}/ca.pem
        offsets.topic.replication.factor=1
        log.dirs={directory}/{broker_id}
        zookeeper.connect={connect_string}
        {more}
    """)


class Brokers:
    """Running brokers, and clients of the first one."""

    def __init__(self, reactor: Any, brokers: list[Broker], certificates: Path) -> None:
        self.reactor = reactor
        self.brokers = brokers
        self.certificates = certificates

    def port(self, listener: str) -> int:
        return self.brokers[0]._ports[listener]

    def config(self, listener: str, mechanism: str, user: str, password: str | None = None) -> dict[str, str]:
        """Return a client's configuration, as for a Java client."""
        module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
        client_config = {
            "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password or PASSWORDS[user]}";',
        }
        if listener == "SASL_SSL":
            client_config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{self.certificates}/ca.pem"}
        return client_config

    def cluster(self, listener: str, mechanism: str, user: str, password: str | None = None) -> Cluster:
        endpoint = secured_endpoints(self.config(listener, mechanism, user, password))
        options = ClientOptions(connect_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S)
        runtime = default_runtime(self.reactor, endpoint=endpoint)
        return Cluster(f"127.0.0.1:{self.port(listener)}", options=options, runtime=runtime)

    @property
    def users(self) -> set[str]:
        servers = [broker.server for broker in self.brokers]
        return {each.user for server in servers if server is not None for each in server.resources.connections}

    async def create_user(self, user: str) -> None:
        """Create SCRAM credentials, as Kafka's tools do."""
        from hashlib import pbkdf2_hmac

        connection = await self.connection("LOCAL", "PLAIN", "admin")
        rows = [
            {
                "name": user,
                "mechanism": mechanism,
                "iterations": 4096,
                "salt": b"a salt",
                "salted_password": pbkdf2_hmac(name, PASSWORDS[user].encode(), b"a salt", 4096),
            }
            for mechanism, name in ((SHA_256, "sha256"), (SHA_512, "sha512"))
        ]
        response = await connection.request(ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": rows})
        assert [row["error_code"] for row in response["results"]] == [0]
        described = await connection.request(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": user}]})
        (row,) = described["results"]
        assert [(info["mechanism"], info["iterations"]) for info in row["credential_infos"]] == [
            (SHA_256, 4096),
            (SHA_512, 4096),
        ]
        await connection.close()
        for broker in self.brokers:  # the other brokers learn of the change from a notification
            while broker.dynamic_settings.scram_credentials.find("SCRAM-SHA-512", user) is None:
                await pause(self.reactor, 0.05)

    async def connection(self, listener: str, mechanism: str, user: str) -> Any:
        endpoint = secured_endpoints(self.config(listener, mechanism, user))
        return await connect(self.reactor, "127.0.0.1", self.port(listener), client_id="test", endpoint=endpoint)

    async def pause(self) -> None:
        await pause(self.reactor, 0.02)

    async def unauthenticated(self, listener: str) -> Any:
        return await connect(self.reactor, "127.0.0.1", self.port(listener), client_id="test")


Scenario = Callable[[Brokers], Awaitable[None]]


def with_brokers(
    count: int,
    directory: Path,
    certificates: Path,
    connect_string: str,
    scenario: Scenario,
    more: str = "",
    *,
    wall_clock_ms: Callable[[], int] | None = None,
) -> None:
    """Run brokers, and a test coroutine with them, on the real reactor.

    :param wall_clock_ms: the brokers' wall clock; the real one by default.
    """

    async def main() -> None:
        from twisted.internet import reactor

        def runtime() -> Runtime:
            made = real_runtime(reactor)
            return made if wall_clock_ms is None else replace(made, wall_clock_ms=wall_clock_ms)

        numbers = range(1, count + 1)
        brokers = [
            Broker(runtime(), settings(number, directory, certificates, connect_string, more)) for number in numbers
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
