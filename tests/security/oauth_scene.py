"""Brokers whose clients and peers authenticate with bearer tokens, and clients of several libraries."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from sasl_scene import RECORDS, TIMEOUT_S, Brokers

from kreplica.blocking import Cluster as BlockingCluster
from kreplica.blocking import Reader
from kreplica.blocking.secured_runtime import secured_runtime
from kreplica.client import ClientOptions, Cluster, default_runtime, secured_endpoints
from kreplica.client.connection import connect
from kreplica.model import TopicPartition
from tests.support.token_server import AUDIENCE, ISSUER, SECRET, TokenServer

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def oauth_settings(server: TokenServer, certificates: Path, more: str = "") -> str:
    """Return further settings, in addition to those of ``sasl_scene.settings``."""
    tls = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates}/ca.pem"'
    jaas = f'{LOGIN} required clientId="broker" clientSecret="{SECRET}" {tls};'
    return f"""
        sasl.mechanism.inter.broker.protocol=OAUTHBEARER
        sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
        sasl.oauthbearer.jwks.endpoint.url={server.url}/keys
        sasl.oauthbearer.expected.audience={AUDIENCE}
        sasl.oauthbearer.expected.issuer={ISSUER}
        sasl.oauthbearer.token.endpoint.url={server.url}/token
        listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class={VALIDATOR}
        listener.name.sasl_ssl.oauthbearer.sasl.jaas.config={jaas}
        listener.name.local.oauthbearer.sasl.jaas.config={jaas}
        listener.name.short.oauthbearer.sasl.jaas.config={jaas}
        listener.name.short.sasl.enabled.mechanisms=OAUTHBEARER
        listener.name.short.connections.max.reauth.ms=0
        {more}
    """


class OAuthClients:
    """Clients of a scene's brokers.

    :param certificates: directory of the CA if the token server uses TLS.
    """

    def __init__(self, scene: Brokers, server: TokenServer, certificates: Path | None) -> None:
        self.scene = scene
        self.server = server
        self._certificates = certificates

    def config(self, listener: str, user: str, secret: str = SECRET, **more: str) -> dict[str, str]:
        """Return a client's configuration, as for a Java client."""
        ca = f"{self._certificates}/ca.pem"
        tls = f' ssl.truststore.type="PEM" ssl.truststore.location="{ca}"' if self._certificates else ""
        base = self.scene.config(listener, "PLAIN", user, secret)
        return {
            **base,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{LOGIN} required clientId="{user}" clientSecret="{secret}" scope="kafka"{tls};',
            "sasl.oauthbearer.token.endpoint.url": f"{self.server.url}/token",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def cluster(self, listener: str, user: str, secret: str = SECRET, **more: str) -> Cluster:
        endpoint = secured_endpoints(self.config(listener, user, secret, **more))
        options = ClientOptions(connect_timeout_s=TIMEOUT_S, operation_timeout_s=TIMEOUT_S)
        runtime = default_runtime(self.scene.reactor, endpoint=endpoint)
        return Cluster(f"127.0.0.1:{self.scene.port(listener)}", options=options, runtime=runtime)

    async def connection(self, listener: str, user: str) -> Any:
        endpoint = secured_endpoints(self.config(listener, user))
        port = self.scene.port(listener)
        return await connect(self.scene.reactor, "127.0.0.1", port, client_id="test", endpoint=endpoint)

    # --- functions that block, for threads ---------------------------------------------------------------------------

    def read_blocking(self, listener: str, user: str) -> int:
        runtime = secured_runtime(self.config(listener, user))
        partition = TopicPartition("orders", 0)
        with (
            BlockingCluster(f"127.0.0.1:{self.scene.port(listener)}", runtime=runtime) as cluster,
            Reader(cluster, {partition: 0}) as reader,
        ):
            count = 0
            while count < RECORDS:
                count += sum(len(batch.records) for batch in reader.read(5.0))
            return count

    def read_with_kafka_python(self, listener: str, user: str) -> int:
        from kafka import KafkaConsumer
        from kafka.net.sasl.oauth import AbstractTokenProvider

        server = self.server

        class Provider(AbstractTokenProvider):
            def token(self) -> str:
                return server.token(user)

        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=f"127.0.0.1:{self.scene.port(listener)}",
            security_protocol="SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            ssl_cafile=f"{self.scene.certificates}/ca.pem",
            auto_offset_reset="earliest",
            consumer_timeout_ms=5000,
        )
        count = 0
        for _ in consumer:
            count += 1
            if count == RECORDS:
                break
        consumer.close()
        return count

    def read_with_aiokafka(self, listener: str, user: str) -> int:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.abc import AbstractTokenProvider
        from aiokafka.helpers import create_ssl_context

        server = self.server

        class Provider(AbstractTokenProvider):
            async def token(self) -> str:
                return server.token(user)

        async def read() -> int:
            is_secure = listener == "SASL_SSL"
            consumer = AIOKafkaConsumer(
                "orders",
                bootstrap_servers=f"127.0.0.1:{self.scene.port(listener)}",
                security_protocol="SASL_SSL" if is_secure else "SASL_PLAINTEXT",
                ssl_context=create_ssl_context(cafile=f"{self.scene.certificates}/ca.pem") if is_secure else None,
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=Provider(),
                auto_offset_reset="earliest",
            )
            await consumer.start()
            try:
                count = 0
                while count < RECORDS:
                    found = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
                    assert found.offset == count
                    count += 1
                return count
            finally:
                await consumer.stop()

        return asyncio.run(read())

    def read_with_librdkafka(self, listener: str, user: str, method: str) -> int:
        """Read with tokens from a callback, or from the token endpoint (``oidc``)."""
        from confluent_kafka import Consumer

        def callback(_: str) -> tuple[str, float]:
            return self.server.token(user), time.time() + self.server.lifetime_s

        login: dict[str, Any] = {"oauth_cb": callback}
        if method == "oidc":
            login = {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": user,
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.token.endpoint.url": f"{self.server.url}/token",
                "sasl.oauthbearer.extensions": "traceId=7",
                "https.ca.location": f"{self.scene.certificates}/ca.pem",
            }
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.scene.port(listener)}",
                "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
                "ssl.ca.location": f"{self.scene.certificates}/ca.pem",
                "sasl.mechanism": "OAUTHBEARER",
                "group.id": f"readers-{listener}-{method}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **login,
            }
        )
        consumer.subscribe(["orders"])
        count = 0
        while count < RECORDS:
            message = consumer.poll(10)
            assert message is not None, f"only {count} records"
            assert message.error() is None, message.error()
            count += 1
        consumer.close()
        return count
