"""A broker's metrics, read by the parser of Prometheus's client library."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.support.process_cluster import wait_until
from tests.support.standalone import StandaloneProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("metrics"), brokers=3) as running:
        yield running


def scrape(process):
    with urlopen(f"{process.admin_url}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def value(families, name, **labels):
    (sample,) = [
        each for family in families.values() for each in family.samples if each.name == name and each.labels == labels
    ]
    return sample.value


def complete_families(families):
    """Return the families, or None if they do not include the partition yet."""
    counted = value(families, "kafka_server_replicamanager_partitioncount")
    return families if counted == len(families["kafka_log_log_size"].samples) else None


def test_prometheus_reads_the_metrics(process):
    """Metrics with Kafka's names are present, and count requests."""
    producer = Producer({"bootstrap.servers": process.bootstrap_servers})
    for number in range(10):
        producer.produce("counted", str(number), partition=0)
    assert producer.flush(20) == 0
    # The totals come from the health report, which is cached for half a second.
    families = wait_until(lambda: complete_families(scrape(process)), "the totals to count the replica")
    assert value(families, "kafka_brokers") == 3
    assert value(families, "kafka_topic_partitions", topic="counted") == 1
    assert value(families, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(families, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert value(families, "kafka_network_requestmetrics_requests_total", request="UpdateMetadata") > 0
    assert value(families, "kreplica_reactor_delay_seconds_count") > 0
    led = {each.labels["topic"]: each.value for each in families["kafka_topic_partition_current_offset"].samples}
    assert len(led) == value(families, "kafka_server_replicamanager_leadercount")
    assert led.get("counted", 10) == 10


def test_invalid_paths(process):
    """A wrong path or method is named in a problem document."""
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{process.admin_url}/metrix")
    assert refused.value.code == 404
    assert refused.value.headers["content-type"] == "application/problem+json"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{process.admin_url}/metrics", data=b"")
    assert refused.value.code == 405


def test_log_lines_contain_no_object_addresses(process):
    """Requests between brokers log nothing such as ``<Factory object at 0x7f...>``."""
    with urlopen(f"{process.admin_url}/v1/brokers?fields=connections,faults") as answer:
        rows = json.load(answer)["brokers"]
    assert [row["connections"] >= 0 for row in rows] == [True] * 3
    assert " at 0x" not in process.all_output
