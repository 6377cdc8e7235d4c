"""The data source and the pipelines with TLS, SCRAM and ACLs, without Spark's own processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from local_audit import run_audit
from pyspark.sql.types import StringType, StructField, StructType

from kreplica.client_core.errors import AuthenticationFailed, ClientError
from kreplica.spark.connection_security import PLAINTEXT, ConnectionSecurity
from kreplica.spark.pipelines.archive.archive import ArchiveOptions
from kreplica.spark.pipelines.audit.audit import AuditOptions
from kreplica.spark.pipelines.compare.compare import CompareOptions
from kreplica.spark.pipelines.replay.plan import ReplayOptions
from kreplica.spark.sink.options import sink_options
from kreplica.spark.source import range_reading
from kreplica.spark.source.options import source_options
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster
from pyspark_kreplica import DefaultSource

TEXT = StructType([StructField("value", StringType())])
USERS = {
    "writer": ["Write orders", "IdempotentWrite cluster"],
    "reader": ["Read orders"],
}


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(3, topics={"orders": 2}, users=USERS) as kafka:
        yield kafka
    range_reading.close_clusters()


def options_of(cluster: KafkaCluster, user: str, **more: str) -> dict[str, str]:
    secured = {f"kafka.{name}": value for name, value in cluster.java_config(user).items()}
    return {**secured, "kafka.default.api.timeout.ms": "5000", "kafka.delivery.timeout.ms": "5000", **more}


def write(options: dict[str, str], values: list[str]) -> None:
    data_source = DefaultSource(options)
    writer = pickle.loads(pickle.dumps(data_source.writer(TEXT, overwrite=False)))
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values)})
    writer.commit([writer.write(iter([batch]))])


def read(options: dict[str, str]) -> list[bytes]:
    data_source = DefaultSource(options)
    reader = pickle.loads(pickle.dumps(data_source.reader(schema=data_source.schema())))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [row["value"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def test_write_and_read(cluster: KafkaCluster) -> None:
    """The driver and the tasks authenticate, and ACLs allow or deny their reads and writes."""
    values = [f"{number}" for number in range(100)]
    write(options_of(cluster, "writer", topic="orders"), values)
    found = read(options_of(cluster, "reader", subscribe="orders"))
    assert sorted(found) == sorted(value.encode() for value in values)
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        write(options_of(cluster, "reader", topic="orders", **{"kafka.enable.idempotence": "false"}), ["denied"])
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(options_of(cluster, "writer", subscribe="orders"))
    assert len(cluster.records("orders")) == 100


def test_certificate_authority_as_text(cluster: KafkaCluster) -> None:
    """With the certificates in an option, executors need no file."""
    assert cluster.ca_file is not None
    options = options_of(cluster, "reader", subscribe="orders")
    del options["kafka.ssl.truststore.location"]
    text = cluster.ca_file.read_text()
    assert len(read({**options, "kafka.SSL.TrustStore.Certificates": text})) == 100
    with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
        read({**options, "kafka.ssl.truststore.certificates": other_authority()})


def other_authority() -> str:
    import tempfile
    from pathlib import Path

    from kreplica.security.tls.development_ca import open_authority

    with tempfile.TemporaryDirectory() as directory:
        open_authority(Path(directory), 10)
        return Path(directory, "ca.pem").read_text()


def test_audit(cluster: KafkaCluster) -> None:
    """An audit fetches the replicas of each broker over TLS."""
    config = cluster.java_config()
    bootstrap = config.pop("bootstrap.servers")
    options = AuditOptions(
        bootstrap=bootstrap,
        via_brokers=True,
        topics=frozenset({"orders"}),
        security=ConnectionSecurity.of(config),
    )
    report = run_audit(options)
    assert {len(each.coverages) for each in report.partitions} - {0} == {3}, "three replicas of each written partition"
    assert not report.notes
    assert not [each for each in report.partitions if each.differences]


def test_wrong_password(cluster: KafkaCluster) -> None:
    """The error names the user, and does not contain the password."""
    options = options_of(cluster, "reader", subscribe="orders")
    password = cluster.password("reader")
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace(password, "planted-secret-1")
    with pytest.raises(ClientError) as caught:
        read(options)
    assert "reader" in str(caught.value)
    assert "planted-secret-1" not in repr(caught.value) + str(caught.value.__cause__)


LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{LOGIN} required username="reader" password="planted-secret-2";'
SECRETS = {
    "kafka.bootstrap.servers": "127.0.0.1:9092",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
    "kafka.ssl.key.password": "planted-secret-3",
    "kafka.ssl.keystore.key": "planted-secret-4",
}


def test_secrets_are_not_shown() -> None:
    """The ``repr`` of options, which may be logged, contains no secret."""
    source = source_options({**SECRETS, "subscribe": "orders"}, is_streaming=False)
    sink = sink_options({**SECRETS, "topic": "orders"})
    archive = ArchiveOptions(bootstrap="h:1", topics=("orders",), kafka=SECRETS)
    comparison = CompareOptions(bootstrap="h:1", kafka=SECRETS)
    replay = ReplayOptions(bootstrap="h:1", options=SECRETS)
    audit = AuditOptions(bootstrap="h:1", security=source.settings.security)
    for each in (source, sink, archive, comparison, replay, audit):
        assert "planted" not in repr(each), type(each)
    assert source.settings.security == sink.settings.security != PLAINTEXT
    assert pickle.loads(pickle.dumps(source)) == source
    assert "planted" not in str(audit.identity)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"kafka.security.protocol": "TLS"}, "security.protocol=TLS: the protocols are PLAINTEXT, SSL"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"kafka.ssl.truststore.locations": "x"}, "Did you mean ssl.truststore.location?"),
        ({"kafka.sasl.jaas.config": "planted-secret-5"}, "sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": JAAS.replace("username", "user")}, "sasl.jaas.config"),
    ],
)
def test_invalid_settings(overrides: dict[str, str], text: str) -> None:
    """The driver reports invalid settings before a task starts; the error names the setting and contains no secret."""
    with pytest.raises(ValueError, match="options kafka") as caught:
        sink_options({**SECRETS, **overrides, "topic": "orders"})
    assert text in str(caught.value)
    assert "planted" not in str(caught.value)


def test_missing_file() -> None:
    """A missing file is reported only when a connection is opened, because files are read then."""
    settings = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/absent/ca.pem"}
    security = ConnectionSecurity.of(settings)
    with pytest.raises(ValueError, match=r"ssl\.truststore\.location=/absent/ca\.pem cannot be read"):
        security.runtime()


def test_plaintext() -> None:
    """PLAINTEXT is the default, which settings unrelated to security do not change."""
    options = {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "x", "subscribe": "orders"}
    assert source_options(options, is_streaming=True).settings.security == PLAINTEXT
