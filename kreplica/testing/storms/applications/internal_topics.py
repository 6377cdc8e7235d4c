"""Internal topics of groups and transactions, with few partitions, and as durable as other topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.storms.cluster_run import ClusterRun

COORDINATOR_PARTITIONS = 2
SESSION_TIMEOUT_S = 3.0

OVERRIDES = (
    f"offsets.topic.num.partitions={COORDINATOR_PARTITIONS}",
    f"transaction.state.log.num.partitions={COORDINATOR_PARTITIONS}",
    f"group.min.session.timeout.ms={SESSION_TIMEOUT_S * 1000:.0f}",
    f"group.consumer.session.timeout.ms={SESSION_TIMEOUT_S * 1000:.0f}",
    "group.consumer.heartbeat.interval.ms=1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
"""Broker settings: few partitions of internal topics, and timeouts short enough to expire in every storm."""


def make_internal_topics(
    run: ClusterRun, host: str, admin: WireClient, configs: Mapping[str, str]
) -> list[TopicPartition]:
    """Create the internal topics unless they exist; return their partitions, whose invariants are checked from then on.

    :param host: name of the host that requests them.
    :param admin: client that changes their settings.
    :param configs: settings of the topics; ``segment.bytes`` is ignored.
    """
    run_until = run.cluster.run_until
    brokers: Sequence[tuple[str, int]] = [(f"broker-{number}", BROKER_PORT) for number in run.cluster.brokers]
    for kind in (GROUP, TRANSACTION):
        client = CoordinatorClient(run.cluster.host(host).reactor, brokers, "workers", kind, client_id=host)
        run_until(client.wait_for_coordinator())
        run_until(client.close())
    settings = {name: value for name, value in configs.items() if name != "segment.bytes"}
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        run_until(admin.change_settings(topic, settings))
    keys = [
        TopicPartition(topic, number)
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)
        for number in range(COORDINATOR_PARTITIONS)
    ]
    for key in keys:
        if key not in run.invariants.committed:
            run.invariants.add(key, None)
    return keys
