"""Apache Kafka's command-line tools of two versions over SASL_SSL, with two brokers that check ACLs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apache_kafka
import pytest

from kreplica.security.tls.development_ca import create_certificate, open_authority
from tests.support.broker_process import BrokerProcess, direct_place
from tests.support.real_zookeeper import RealZooKeeper

pytestmark = pytest.mark.soak

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = 'user_admin="admin-secret" user_plain="plain-secret"'
RECORDS = 500
TIMEOUT_S = 180
TOOLS = "org.apache.kafka.tools"


class Version(NamedTuple):
    """Classes of the tools of one version, and the options that they renamed."""

    number: str
    acls: str
    producer: str
    config_option: str
    consumer_config_option: str
    producer_config_option: str


LOG4J = """log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%p %c %m%n
"""
"""Shows errors, which version 3.9 would discard."""

VERSIONS = (
    Version(
        apache_kafka.KAFKA_VERSION,
        "kafka.admin.AclCommand",
        "kafka.tools.ConsoleProducer",
        "--command-config",
        "--consumer.config",
        "--producer.config",
    ),
    Version(
        apache_kafka.NEWEST_VERSION,
        f"{TOOLS}.AclCommand",
        f"{TOOLS}.ConsoleProducer",
        "--command-config",
        "--command-config",
        "--command-config",
    ),
)
CASES = [(version, mechanism) for version in VERSIONS for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        for version in VERSIONS:
            apache_kafka.tools_class_path(version.number)
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's tools: {missing}")


class SecuredCluster(NamedTuple):
    """Running brokers, and the directory with the files of their clients."""

    directory: Path
    bootstrap_servers: str

    def client(self, user: str, mechanism: str, password: str | None = None) -> Path:
        """Return the settings file of a client."""
        module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
        path = self.directory / f"{user}-{mechanism}.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password or f"{user}-secret"}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.directory}/ca.pem\n"
        )
        return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("secured")
    authority = open_authority(directory, 10)
    create_certificate(directory, authority, "broker", ["127.0.0.1"], 10)
    brokers: list[BrokerProcess] = []
    with RealZooKeeper(directory / "zookeeper") as zookeeper:
        try:
            for broker_id in (1, 2):
                place = direct_place(zookeeper.connect_string)
                home = directory / str(broker_id)
                home.mkdir()
                broker = BrokerProcess(home, broker_id, place, secured(directory, place.port))
                brokers.append(broker)
                broker.start()
            yield SecuredCluster(directory, ",".join(broker.address for broker in brokers))
        finally:
            for broker in brokers:
                broker.stop()


def secured(directory: Path, port: int) -> dict[str, object]:
    """Return the settings of a broker."""
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{PLAIN_LOGIN} required username="admin" password="admin-secret" {USERS};'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": directory / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "ca.pem",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "offsets.topic.replication.factor": 1,
    }


def run(version: Version, main: str, *arguments: object, stdin: str = "", fails: bool = False) -> str:
    """Run a tool; return its output.

    :param fails: True if the tool must fail.
    """
    jars = apache_kafka.tools_class_path(version.number)
    logging = Path(jars).with_name("log4j.properties")
    logging.write_text(LOG4J)
    java = ["java", "-Xmx192m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}", "-cp", jars]
    command = [*java, main, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    output = done.stdout + done.stderr
    assert fails or done.returncode == 0, f"{main} {arguments}: {output[-3000:]}"
    return output


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.number)
def test_administration(cluster: SecuredCluster, version: Version) -> None:
    """The tools create, show and delete SCRAM users, quotas and ACLs, and name the error of a user without rights."""
    admin = cluster.client("admin", "PLAIN")
    server = ("--bootstrap-server", cluster.bootstrap_servers, version.config_option, admin)
    user = f"carol-{version.number}"
    entity = ("--entity-type", "users", "--entity-name", user)
    scram = "SCRAM-SHA-256=[password=carol-secret],SCRAM-SHA-512=[iterations=8192,password=carol-secret]"
    configs = "kafka.admin.ConfigCommand"
    assert f"Completed updating config for user {user}" in run(
        version, configs, *server, "--alter", *entity, "--add-config", scram
    )
    described = run(version, configs, *server, "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=4096" in described
    assert "SCRAM-SHA-512=iterations=8192" in described
    quotas = "producer_byte_rate=1000000,consumer_byte_rate=2000000,request_percentage=50,controller_mutation_rate=5"
    run(version, configs, *server, "--alter", *entity, "--add-config", quotas)
    described = run(version, configs, *server, "--describe", *entity)
    for quota in ("producer_byte_rate=1000000.0", "request_percentage=50.0", "controller_mutation_rate=5.0"):
        assert quota in described
    for deleted in ("producer_byte_rate", "SCRAM-SHA-256"):
        run(version, configs, *server, "--alter", *entity, "--delete-config", deleted)
    described = run(version, configs, *server, "--describe", *entity)
    assert "producer_byte_rate" not in described
    assert "SCRAM-SHA-256" not in described

    added = run(version, version.acls, *server, "--add", "--allow-principal", f"User:{user}", "--producer",
                "--topic", "t-", "--resource-pattern-type", "prefixed")  # fmt: skip
    assert "operation=WRITE" in added
    run(version, version.acls, *server, "--add", "--deny-principal", f"User:{user}", "--deny-host", "10.0.0.1",
        "--operation", "Read", "--group", "*")  # fmt: skip
    listed = run(version, version.acls, *server, "--list", "--principal", f"User:{user}")
    assert "patternType=PREFIXED" in listed
    assert "host=10.0.0.1, operation=READ, permissionType=DENY" in listed
    run(version, version.acls, *server, "--remove", "--force", "--deny-principal", f"User:{user}", "--deny-host",
        "10.0.0.1", "--operation", "Read", "--group", "*")  # fmt: skip
    assert "10.0.0.1" not in run(version, version.acls, *server, "--list", "--principal", f"User:{user}")

    carol = ("--bootstrap-server", cluster.bootstrap_servers, version.config_option)
    mine = (*carol, cluster.client(user, "SCRAM-SHA-512", "carol-secret"))
    assert "ClusterAuthorizationException" in run(version, version.acls, *mine, "--list", fails=True)
    wrong = (*carol, cluster.client(user, "SCRAM-SHA-512", "wrong"))
    assert "SaslAuthenticationException" in run(version, version.acls, *wrong, "--list", fails=True)


@pytest.mark.parametrize(("version", "mechanism"), CASES, ids=lambda each: getattr(each, "number", each))
def test_producers_and_consumers(cluster: SecuredCluster, version: Version, mechanism: str) -> None:
    """The console and verifiable clients write and read all records with the ACLs that they need, and none without."""
    admin = ("--bootstrap-server", cluster.bootstrap_servers, version.config_option, cluster.client("admin", "PLAIN"))
    name = f"{version.number}-{mechanism.lower()}"
    user, topic, group = ("plain" if mechanism == "PLAIN" else f"user-{name}"), f"t-{name}", f"g-{name}"
    client = cluster.client(user, mechanism)
    run(version, f"{TOOLS}.TopicCommand", *admin, "--create", "--topic", topic, "--replication-factor", 2)
    if mechanism != "PLAIN":
        scram = f"{mechanism}=[password={user}-secret]"
        run(version, "kafka.admin.ConfigCommand", *admin, "--alter", "--entity-type", "users", "--entity-name", user,
            "--add-config", scram)  # fmt: skip
    server = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    writing = (*server, version.producer_config_option, client)
    reading = (*server, version.consumer_config_option, client, "--group", group)
    refused = run(version, version.producer, *writing, stdin="refused\n", fails=True)
    assert "TopicAuthorizationException" in refused
    acls = ("--add", "--allow-principal", f"User:{user}", "--topic", topic)
    run(version, version.acls, *admin, *acls, "--producer")
    run(version, version.acls, *admin, *acls, "--consumer", "--group", group)

    run(version, version.producer, *writing, stdin="".join(f"line {number}\n" for number in range(RECORDS)))
    output = run(version, f"{TOOLS}.consumer.ConsoleConsumer", *reading, "--from-beginning", "--max-messages", RECORDS)
    assert [line for line in output.splitlines() if line.startswith("line")] == [
        f"line {number}" for number in range(RECORDS)
    ]
    option = "--producer.config" if version is VERSIONS[0] else "--command-config"
    sent = run(version, f"{TOOLS}.VerifiableProducer", *server, option, client, "--max-messages", RECORDS)
    assert f'"acked":{RECORDS}' in sent.replace(" ", "")
    option = "--consumer.config" if version is VERSIONS[0] else "--command-config"
    verified = run(version, f"{TOOLS}.VerifiableConsumer", *server, option, client, "--group-id", group,
                   "--max-messages", RECORDS)  # fmt: skip
    assert "records_consumed" in verified
    assert '"success":false' not in verified
