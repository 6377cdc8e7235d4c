"""A standalone cluster with given broker IDs and a given advertised host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kreplica.blocking import EARLIEST, Cluster, Producer, Reader, TopicPartition
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import end_offsets
from tests.support.standalone import StandaloneProcess


@pytest.mark.parametrize("arguments", [(), ("--processes",)])
def test_ids_from_zero_at_localhost(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Brokers have the given IDs, and clients connect through the advertised host."""
    arguments = ("--first-broker-id", "0", "--advertised-host", "localhost", *arguments)
    with StandaloneProcess(tmp_path, brokers=2, arguments=arguments) as process:
        with Cluster(process.bootstrap_servers) as cluster:
            create_topic(cluster, "t", 1, 2)
            with Producer(cluster) as producer:
                producer.send("t", b"v")
            brokers = cluster.view.brokers
            assert set(brokers) == {0, 1}
            assert {broker.address.host for broker in brokers.values()} == {"localhost"}
            partition = TopicPartition("t", 0)
            with Reader(cluster, {partition: EARLIEST}, ends=end_offsets(cluster, [partition])) as reader:
                assert [record.value for record in reader.records()] == [b"v"]
        assert (tmp_path / "data" / "broker-0").is_dir()
