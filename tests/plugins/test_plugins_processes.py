"""The example plugins in a broker process, used by third-party clients."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.support.server_process import free_ports
from tests.support.standalone import StandaloneProcess

EXAMPLES = Path(__file__).parents[2] / "docs" / "plugins"


class BrokerWithExamples:
    """A broker process with the example plugins; ``statsd`` receives its metrics."""

    def __init__(self, directory: Path) -> None:
        self.statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.statsd.bind(("127.0.0.1", 0))
        self.statsd.settimeout(20)
        self.lines_port, self.check_port = free_ports(2)
        settings = {
            "kreplica.produce.interceptors": "deliver-at",
            "kreplica.plugin.deliver-at.topics": "held",
            "kreplica.extra.listeners": "line-protocol,agent-check",
            "kreplica.plugin.line-protocol.listen": f"127.0.0.1:{self.lines_port}",
            "kreplica.plugin.agent-check.listen": f"127.0.0.1:{self.check_port}",
            "kreplica.metrics.reporters": "statsd,log",
            "kreplica.metrics.report.interval.ms": "500",
            "kreplica.plugin.log.names": "kafka_brokers",
            "kreplica.plugin.statsd.address": f"127.0.0.1:{self.statsd.getsockname()[1]}",
            "kreplica.plugin.statsd.names": "kafka_log_log_size,kafka_server_*",
        }
        words = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
        self.process = StandaloneProcess(directory, arguments=tuple(words))


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[BrokerWithExamples]:
    path = os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        broker = BrokerWithExamples(tmp_path_factory.mktemp("examples"))
        with broker.process:
            admin = AdminClient({"bootstrap.servers": broker.process.bootstrap_servers})
            creations = admin.create_topics([NewTopic("held", 1), NewTopic("lines", 2)])
            for each in creations.values():
                each.result(20)
            yield broker
    broker.statsd.close()


def consume(broker: BrokerWithExamples, count: int, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.process.bootstrap_servers,
            "group.id": f"g-{isolation}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    consumer.subscribe(["held"])
    values = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None, values
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    return values


def test_consumers_skip_notes(broker):
    """librdkafka and kafka-python skip the plugin's notes, and batches without remaining records."""
    producer = Producer({"bootstrap.servers": broker.process.bootstrap_servers, "enable.idempotence": True})
    soon = str(int(time.time() * 1000) + 1500)
    producer.produce("held", b"later", headers={"deliver-at": soon})
    assert producer.flush(20) == 0
    for value in (b"one", b"two"):
        producer.produce("held", value)
    producer.produce("held", b"latest", headers={"deliver-at": str(int(soon) + 200)})
    assert producer.flush(20) == 0
    expected = [b"one", b"two", b"later", b"latest"]
    assert consume(broker, 4, "read_uncommitted") == expected
    assert consume(broker, 4, "read_committed") == expected
    reader = KafkaConsumer(
        "held",
        bootstrap_servers=broker.process.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        group_id=None,
    )
    assert [next(reader).value for _ in expected] == expected
    reader.close()


def send_lines(port: int, text: bytes = b"", lines: int = 1) -> list[bytes]:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(text)
        with connection.makefile("rb") as answers:
            return [answers.readline() for _ in range(lines)]


def test_lines_become_records(broker):
    """Each line gets a response in order: the record's partition and offset, or an error."""
    lines = b'PUT lines {"id": 7}\r\nPUT lines b\nPUT nowhere x\nGET lines\nPUT lines c\n'
    answers = send_lines(broker.lines_port, lines, 5)
    assert answers == [
        b"OK 0 0\n",
        b"OK 1 0\n",
        b"ERROR there is no topic nowhere\n",
        b"ERROR expected: PUT TOPIC VALUE\n",
        b"OK 0 1\n",
    ]


def test_load_balancer_check(broker):
    """A ready broker reports this to the load balancer's check."""
    assert send_lines(broker.check_port) == [b"up\n"]


def test_statsd_metrics(broker):
    """Lines have the broker and the labels as tags, and datagrams have a bounded size."""
    found: set[str] = set()
    while not {"kafka_log_log_size", "kafka_server_replicamanager_leadercount"} <= found:
        datagram = broker.statsd.recv(65536)
        assert len(datagram) <= 1400
        for line in datagram.decode().splitlines():
            name, rest = line.split(":", 1)
            assert "|g|#broker:1" in rest
            found.add(name)
    assert all(name == "kafka_log_log_size" or name.startswith("kafka_server_") for name in found)


def test_metrics_in_the_log(broker):
    """The log has a line for each selected metric."""
    assert "kafka_brokers: 1" in broker.process.all_output
