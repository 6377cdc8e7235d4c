"""Bearer tokens with Apache Kafka's tools, and the decisions of Apache Kafka's validator about the same tokens."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_kafka
import jwt
import pytest

from kreplica.blocking.blocking_runtime import default_runtime
from kreplica.blocking.connection import Connection
from kreplica.client_core.addresses import Address
from kreplica.client_core.options import ClientOptions
from kreplica.security.sasl.oauthbearer import build_first_message
from kreplica.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.broker_process import BrokerProcess, direct_place
from tests.support.coordinator import CoordinatorProcess
from tests.support.token_server import (
    AUDIENCE,
    ISSUER,
    SECRET,
    TokenServer,
    claims,
    ec_key,
    jwk,
    key_set,
    rsa_key,
    token_server,
)

pytestmark = pytest.mark.soak

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
LOGIN = f"{PACKAGE}.OAuthBearerLoginModule"
RECORDS = 20


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's tools: {missing}")


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        running.keys = key_set(jwk(rsa_key(1), "one"), jwk(ec_key(1), "curve"), jwk(rsa_key(4), "other", alg="RS384"))
        yield running


def secured(port: int, server: TokenServer) -> dict[str, object]:
    """Return settings of a broker, of kreplica or Kafka; brokers connect to each other with tokens."""
    prefix = "listener.name.sasl_plaintext.oauthbearer"
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
        "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        f"{prefix}.sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{prefix}.sasl.jaas.config": f'{LOGIN} required clientId="broker" clientSecret="{SECRET}";',
        "offsets.topic.replication.factor": 1,
    }


@contextmanager
def kreplica_broker(directory: Path, zookeeper: str, server: TokenServer) -> Iterator[str]:
    place = direct_place(zookeeper)
    home = directory / "kreplica"
    home.mkdir()
    broker = BrokerProcess(home, 1, place, secured(place.port, server))
    try:
        broker.start()
        yield broker.address
    finally:
        broker.stop()


@contextmanager
def kafka_broker(directory: Path, zookeeper: str, server: TokenServer) -> Iterator[str]:
    port = apache_kafka.free_port()
    home = directory / "kafka"
    home.mkdir()
    properties = {"broker.id": 2, "zookeeper.connect": zookeeper, "log.dirs": home / "logs", **secured(port, server)}
    process = apache_kafka.start("kafka.Kafka", properties, home, "384m")
    try:
        apache_kafka.wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


def client_config(directory: Path, server: TokenServer) -> Path:
    path = directory / "client.properties"
    path.write_text(f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url={server.url}/token
sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler
sasl.jaas.config={LOGIN} required clientId="alice" clientSecret="{SECRET}" scope="kafka" extension_traceId="7";
""")
    return path


def run_console(main: str, text: str, *arguments: object) -> str:
    """Run a console client of Kafka with a standard input, and return its output."""
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", apache_kafka.class_path(), main]
    result = subprocess.run(
        [*command, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_kafka_tools(tmp_path: Path, server: TokenServer) -> None:
    """Kafka's Java clients obtain tokens from the endpoint, and keep their connections with tokens of two seconds."""
    with (
        CoordinatorProcess(tmp_path / "coordinator") as zookeeper,
        kreplica_broker(tmp_path, zookeeper.address, server) as address,
    ):
        config = client_config(tmp_path, server)
        apache_kafka.run_tool("TopicCommand", address, "--command-config", config, "--create", "--topic", "t")
        lines = "".join(f"{number}\n" for number in range(RECORDS))
        run_console(
            "kafka.tools.ConsoleProducer", lines, "--bootstrap-server", address, "--topic", "t",
            "--producer.config", config,
        )  # fmt: skip
        server.lifetime_s = 2
        issued = len(server.tokens)
        output = run_console(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "", "--bootstrap-server", address, "--topic", "t",
            "--consumer.config", config, "--from-beginning", "--timeout-ms", 8000,
        )  # fmt: skip
        assert output.split() == [str(number) for number in range(RECORDS)]
        assert len(server.tokens) - issued >= 3


# --- the same decisions ----------------------------------------------------------------------------------------------


def section(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def tokens(now_s: int) -> dict[str, str]:
    """Return tokens by a description of how they differ from a valid one."""

    def signed(
        key: Any = None, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: Any
    ) -> str:
        chosen = {"kid": "one"} if headers is None else headers
        return jwt.encode(claims(now_s, **changes), key or rsa_key(1), algorithm, chosen)

    header, body, signature = signed().split(".")
    none = section({"alg": "none"})
    cases: dict[str, dict[str, Any]] = {
        "valid": {},
        "RS512": {"algorithm": "RS512"},
        "PS256": {"algorithm": "PS256"},
        "ES256": {"key": ec_key(1), "algorithm": "ES256", "headers": {"kid": "curve"}},
        "no key ID": {"headers": {}},
        "no type": {"headers": {"kid": "one", "typ": None}},
        "another type": {"headers": {"kid": "one", "typ": "at+jwt"}},
        "unknown key": {"headers": {"kid": "missing"}},
        "key of another algorithm": {"key": rsa_key(4), "headers": {"kid": "other"}},
        "algorithm of the key": {"key": rsa_key(4), "algorithm": "RS384", "headers": {"kid": "other"}},
        "wrong key": {"key": rsa_key(5)},
        "critical header": {"headers": {"kid": "one", "crit": ["x"], "x": 1}},
        "expired": {"iat": now_s - 200, "exp": now_s - 100},
        "expired within the skew": {"iat": now_s - 200, "exp": now_s - 10},
        "no exp": {"exp": None},
        "exp is a text": {"exp": "x"},
        "exp is negative": {"exp": -5},
        "exp before iat": {"iat": now_s + 400},
        "exp is fractional": {"exp": now_s + 100.5},
        "no iat": {"iat": None},
        "iat in the future": {"iat": now_s + 200},
        "not valid yet": {"nbf": now_s + 200},
        "not valid yet within the skew": {"nbf": now_s + 10},
        "other audience": {"aud": "x"},
        "several audiences": {"aud": ["x", AUDIENCE]},
        "no audience": {"aud": None},
        "other issuer": {"iss": "https://evil.example"},
        "no issuer": {"iss": None},
        "no subject": {"sub": None},
        "empty subject": {"sub": ""},
        "blank subject": {"sub": "  "},
        "subject is a number": {"sub": 5},
        "scope is a text": {"scope": "a b"},
        "scope is empty": {"scope": ""},
        "scope is a list": {"scope": ["a", "b"]},
        "scope twice": {"scope": ["a", "a"]},
        "scope is an object": {"scope": {"a": 1}},
    }
    return {
        **{name: signed(**case) for name, case in cases.items()},
        "no signature": f"{header}.{body}.",
        "none": f"{none}.{body}.",
        "none with a signature": f"{none}.{body}.{signature}",
        "HMAC": jwt.encode(claims(now_s), "k" * 64, "HS256", {"kid": "one"}),
        "changed claims": f"{header}.{section({'sub': 'admin'})}.{signature}",
        "not JSON": f"{header}.{section([])}.{signature}",
        "two sections": f"{header}.{body}",
        "opaque": "abc",
    }


def decision(address: str, token: str) -> object:
    """Return the broker's response: ``accepted``, the error in JSON, or the error code."""
    host, _, port = address.rpartition(":")
    with Connection.open(Address(host, int(port)), ClientOptions(), default_runtime()) as connection:
        connection.exchange(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"}, 20)
        message = build_first_message(token, {})
        response = connection.exchange(SASL_AUTHENTICATE, 1, {"auth_bytes": message}, 20)
        if response["error_code"]:
            return int(response["error_code"])
        answer = bytes(response["auth_bytes"]).replace(b" ", b"").decode()
        if not answer:
            return "accepted"
        acknowledged = connection.exchange(SASL_AUTHENTICATE, 1, {"auth_bytes": b"\x01"}, 20)
        return answer, int(acknowledged["error_code"])




INVALID = ('{"status":"invalid_token"}', 58)
DIFFERENCES = {"key of another algorithm": ("accepted", INVALID)}
"""Tokens about which the brokers decide differently, with the decisions of Kafka and of kreplica: a key has one
algorithm (RFC 8725, section 3.1)."""


def test_decisions_are_those_of_kafka(tmp_path: Path, server: TokenServer) -> None:
    """Both brokers accept and reject the same tokens, with the same errors, except for listed differences."""
    with (
        CoordinatorProcess(tmp_path / "coordinator") as zookeeper,
        kafka_broker(tmp_path, f"{zookeeper.address}/kafka", server) as kafka,
        kreplica_broker(tmp_path, f"{zookeeper.address}/kreplica", server) as kreplica,
    ):
        differences = {}
        for name, token in tokens(int(time.time())).items():
            expected, found = decision(kafka, token), decision(kreplica, token)
            if expected != found:
                differences[name] = expected, found
        assert differences == DIFFERENCES
