"""Transactions of Kafka's Java producer, versions 3 and 4; needs Java and Maven, so it is part of the soak."""

from pathlib import Path

import apache_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kreplica.wire.messages import DESCRIBE_TRANSACTIONS
from tests.support.blocking_client import BlockingClient

pytestmark = pytest.mark.soak

PROGRAM = Path(__file__).with_name("java") / "Transactions.java"
PARTITIONS, TRANSACTIONS = 3, 40


@pytest.mark.parametrize(("version", "epoch"), [("3.9.1", 0), ("4.1.0", TRANSACTIONS)])
def test_only_committed_records_are_read(broker, topic, version, epoch):
    """Records and offsets of committed transactions; with Kafka 4's clients the epoch grows with each transaction."""
    try:
        apache_kafka.client_class_path(version)
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Kafka's Java clients {version}: {missing}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    name = f"java-{version}"
    arguments = (broker.bootstrap_servers, topic, PARTITIONS, name, TRANSACTIONS)
    printed = apache_kafka.run_program(version, PROGRAM, *arguments)
    *values, offset = printed.split()
    expected = [f"{each}/{number}" for each in range(0, TRANSACTIONS, 2) for number in range(20)]
    assert sorted(values) == sorted(expected)
    for partition in range(PARTITIONS):
        own = [value for value in values if int(value.split("/")[1]) % PARTITIONS == partition]
        assert own == [value for value in expected if value in set(own)], "in order"
    assert int(offset) == TRANSACTIONS - 2
    host, port = broker.bootstrap_servers.split(":")
    with BlockingClient(host, int(port)) as client:
        (state,) = client.request(DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]})["transaction_states"]
    assert state["producer_epoch"] == epoch
