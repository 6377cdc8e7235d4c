"""Replica placement and leader election by plugins, with fallbacks for invalid results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.cluster.placement import BrokerPlace, check_numbers
from kreplica.errors import KafkaError
from kreplica.interfaces import ILeaderElection, IReplicaPlacement, PlacementBroker
from kreplica.model import TopicPartition
from kreplica.server.handlers.topics.topic_admin import place_evenly
from kreplica.service.plugins.plugin_failures import PluginFailures


class ChosenPlacement:
    """Places replicas with a plugin, or evenly if its result is invalid."""

    def __init__(self, plugin: IReplicaPlacement, failures: PluginFailures) -> None:
        self._plugin = plugin
        self._failures = failures

    def __call__(
        self,
        topic: str,
        brokers: Sequence[BrokerPlace],
        partitions: int,
        replication_factor: int,
        *,
        start_index: int,
        shift: int,
        first_partition: int = 0,
    ) -> dict[int, tuple[int, ...]]:
        check_numbers(brokers, partitions, replication_factor)
        numbers = range(first_partition, first_partition + partitions)
        live = [PlacementBroker(broker.broker_id, broker.rack) for broker in brokers]
        try:
            placed = self._plugin.place(topic, numbers, replication_factor, live)
            reason = _invalid_reason(placed, numbers, replication_factor, {broker.broker_id for broker in live})
            if reason is None:
                return {number: tuple(placed[number]) for number in numbers}
            self._failures.record_misbehaviour(f"returned an invalid placement of {topic}: {reason}")
        except KafkaError:
            raise
        except Exception:
            self._failures.record_exception(f"placing replicas of {topic}")
        return place_evenly(
            topic,
            brokers,
            partitions,
            replication_factor,
            start_index=start_index,
            shift=shift,
            first_partition=first_partition,
        )


def _invalid_reason(
    placed: Mapping[int, Sequence[int]], numbers: range, replication_factor: int, live: set[int]
) -> str | None:
    if set(placed) != set(numbers):
        return f"partitions {sorted(placed)} instead of {list(numbers)}"
    for number in numbers:
        replicas = list(placed[number])
        if len(replicas) != replication_factor or len(set(replicas)) != len(replicas) or not set(replicas) <= live:
            return f"partition {number} on {replicas}, but the brokers are {sorted(live)}"
    return None


class ChosenElection:
    """Orders the candidates of an election with a plugin, or by the assignment if its result is invalid."""

    def __init__(self, plugin: ILeaderElection, failures: PluginFailures) -> None:
        self._plugin = plugin
        self._failures = failures

    def __call__(
        self, partition: TopicPartition, replicas: tuple[int, ...], racks: Mapping[int, str | None]
    ) -> tuple[int, ...]:
        try:
            preferred = tuple(self._plugin.preference(partition, replicas, racks))
            if sorted(preferred) == sorted(replicas):
                return preferred
            self._failures.record_misbehaviour(
                f"returned the preference {list(preferred)} for the replicas {list(replicas)} of {partition}"
            )
        except Exception:
            self._failures.record_exception(f"choosing a leader of {partition}")
        return replicas
