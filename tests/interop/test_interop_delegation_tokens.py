"""Delegation tokens with Apache Kafka's tools, and with a broker of Apache Kafka on the same ZooKeeper."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apache_kafka
import pytest

from tests.support.broker_process import BrokerProcess, direct_place
from tests.support.real_zookeeper import RealZooKeeper

pytestmark = pytest.mark.soak

TOOL = "DelegationTokenCommand"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = 'user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret"'
JAAS = f'{PLAIN_LOGIN} required username="admin" password="admin-secret" {USERS};'
MECHANISMS = ("scram-sha-256", "scram-sha-512")
RECORDS = 20
HOUR_MS = 3_600_000
LOG4J = """log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%p %c %m%n
"""


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's tools: {missing}")


def secured(port: int) -> dict[str, object]:
    """Return settings of a broker, of kreplica or Kafka."""
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        **{f"listener.name.sasl_plaintext.{each}.sasl.jaas.config": f"{SCRAM_LOGIN} required;" for each in MECHANISMS},
        "delegation.token.secret.key": "the same secret on all brokers",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "offsets.topic.replication.factor": 1,
    }


@contextmanager
def kreplica_brokers(directory: Path, zookeeper: str, *broker_ids: int) -> Iterator[str]:
    """Run brokers; yield their addresses."""
    started: list[BrokerProcess] = []
    try:
        for broker_id in broker_ids:
            place = direct_place(zookeeper)
            home = directory / str(broker_id)
            home.mkdir()
            broker = BrokerProcess(home, broker_id, place, secured(place.port))
            started.append(broker)
            broker.start()
        yield ",".join(broker.address for broker in started)
    finally:
        for broker in started:
            broker.stop()


@contextmanager
def kafka_broker(directory: Path, zookeeper: str, broker_id: int) -> Iterator[str]:
    """Run a broker of Apache Kafka on the same ZooKeeper; yield its address."""
    port = apache_kafka.free_port()
    home = directory / f"kafka-{broker_id}"
    home.mkdir()
    properties = {"broker.id": broker_id, "zookeeper.connect": zookeeper, "log.dirs": home / "logs", **secured(port)}
    process = apache_kafka.start("kafka.Kafka", properties, home, "384m")
    try:
        apache_kafka.wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


def user_config(directory: Path, user: str) -> Path:
    """Return the file of a client with a password."""
    jaas = f'{PLAIN_LOGIN} required username="{user}" password="{user}-secret";'
    return config_file(directory / f"{user}.properties", "PLAIN", jaas)


def token_config(directory: Path, token: Sequence[str], mechanism: str) -> Path:
    """Return the file of a client with a token."""
    token_id, hmac = token[:2]
    jaas = f'{SCRAM_LOGIN} required username="{token_id}" password="{hmac}" tokenauth="true";'
    return config_file(directory / "token.properties", mechanism, jaas)


def config_file(path: Path, mechanism: str, jaas: str) -> Path:
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return path


def tokens_in(output: str) -> dict[str, list[str]]:
    """Parse the table of the tool: ID -> ID, HMAC, owner, requester, renewers and times."""
    pattern = r"^(\S{22}) +(\S{88}) +(User:\S+) +(User:\S+) +(\[.*?\]) +(\S+) +(\S+) +(\S+)"
    rows = re.findall(pattern, output, re.MULTILINE)
    return {row[0]: list(row) for row in rows}


def produce(bootstrap_servers: str, config: Path, topic: str, lines: Sequence[str]) -> str:
    """Run Kafka's console producer; return its errors, which do not change its exit status."""
    logging = config.with_name("log4j.properties")
    logging.write_text(LOG4J)
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}"]
    java += ["-cp", apache_kafka.class_path()]
    words = ["--bootstrap-server", bootstrap_servers, "--producer.config", str(config), "--topic", topic]
    words += ["--producer-property", "delivery.timeout.ms=20000", "--producer-property", "request.timeout.ms=10000"]
    command = [*java, "kafka.tools.ConsoleProducer", *words]
    given = "\n".join(lines)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("SLF4J"))


def test_tools_and_clients_of_kafka(tmp_path: Path) -> None:
    """Tokens are created, listed, renewed and expired; a producer and a consumer authenticate with one."""
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        kreplica_brokers(tmp_path, zookeeper.connect_string, 1, 2) as brokers,
    ):
        admin, alice, bob = (user_config(tmp_path, user) for user in ("admin", "alice", "bob"))

        def tool(config: Path, *words: object) -> str:
            return apache_kafka.run_tool(TOOL, brokers, "--command-config", config, *words)

        created = tool(alice, "--create", "--max-life-time-period", 4 * HOUR_MS, "--renewer-principal", "User:bob")
        ((token_id, token),) = tokens_in(created).items()
        assert token[2:5] == ["User:alice", "User:alice", "[User:bob]"]
        for config in (alice, bob, admin):
            for owner in ("User:alice", "User:bob"):
                assert tokens_in(tool(config, "--describe", "--owner-principal", owner)) == {token_id: token}
        assert "Completed renew operation" in tool(bob, "--renew", "--renew-time-period", -1, "--hmac", token[1])
        with pytest.raises(AssertionError, match="DelegationTokenOwnerMismatchException"):
            tool(admin, "--renew", "--renew-time-period", -1, "--hmac", token[1])
        with pytest.raises(AssertionError, match="DelegationTokenAuthorizationException"):
            tool(alice, "--create", "--max-life-time-period", -1, "--owner-principal", "User:bob")

        words = ("--command-config", admin, "--create", "--topic", "orders", "--replication-factor", 2)
        apache_kafka.run_tool("TopicCommand", brokers, *words)
        lines = [f"line {number}" for number in range(RECORDS)]
        with_token = token_config(tmp_path, token, "SCRAM-SHA-512")
        assert "TopicAuthorizationException" in produce(brokers, with_token, "orders", lines[:1])
        acl = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "orders")
        permit = ["java", "-cp", apache_kafka.class_path(), "kafka.admin.AclCommand", "--bootstrap-server", brokers]
        subprocess.run([*permit, "--command-config", str(admin), *acl], check=True, timeout=120)
        assert produce(brokers, with_token, "orders", lines) == ""
        with_token = token_config(tmp_path, token, "SCRAM-SHA-256")
        read = apache_kafka.run_tool(
            "consumer.ConsoleConsumer",
            brokers,
            *("--consumer.config", with_token, "--topic", "orders", "--partition", 0, "--offset", "earliest"),
            *("--max-messages", RECORDS),
        )
        assert read.splitlines() == lines
        with pytest.raises(AssertionError, match="Delegation Token requests are not allowed"):
            tool(with_token, "--create", "--max-life-time-period", -1)

        assert "Completed expire operation" in tool(bob, "--expire", "--expiry-time-period", -1, "--hmac", token[1])
        assert tokens_in(tool(alice, "--describe", "--owner-principal", "User:alice")) == {}
        with pytest.raises(AssertionError, match="DelegationTokenNotFoundException"):
            tool(alice, "--renew", "--renew-time-period", -1, "--hmac", token[1])
        assert "SaslAuthenticationException" in produce(brokers, with_token, "orders", lines)


def test_tokens_of_a_kafka_broker(tmp_path: Path) -> None:
    """Brokers of both programs with the same secret accept, change and delete each other's tokens."""
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        kreplica_brokers(tmp_path, zookeeper.connect_string, 1) as ours,
        kafka_broker(tmp_path, zookeeper.connect_string, 2) as theirs,
    ):
        alice = user_config(tmp_path, "alice")

        def tool(broker: str, config: Path, *words: object) -> str:
            return apache_kafka.run_tool(TOOL, broker, "--command-config", config, *words)

        described = ("--describe", "--owner-principal", "User:alice")
        created: dict[str, list[str]] = {}
        for broker in (ours, theirs):
            created |= tokens_in(tool(broker, alice, "--create", "--max-life-time-period", -1))
        assert len(created) == 2
        for broker in (ours, theirs):
            assert tokens_in(tool(broker, alice, *described)) == created
            assert tokens_in(tool(broker, alice, "--describe")) == {}, "version 3.9 of the tool requests no owners"
            for token in created.values():
                config = token_config(tmp_path, token, "SCRAM-SHA-256")
                with pytest.raises(AssertionError, match="Delegation Token requests are not allowed"):
                    tool(broker, config, "--describe")  # it could authenticate
        by_us, by_them = created
        tool(theirs, alice, "--expire", "--expiry-time-period", -1, "--hmac", created[by_us][1])
        tool(ours, alice, "--renew", "--renew-time-period", HOUR_MS, "--hmac", created[by_them][1])
        (left,) = tokens_in(tool(theirs, alice, *described)).values()
        assert left[0] == by_them
        assert left[6] != created[by_them][6]
        assert tokens_in(tool(ours, alice, *described)) == {by_them: left}
