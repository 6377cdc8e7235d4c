"""Where commands to brokers are formed: at most one LeaderAndIsr, UpdateMetadata and StopReplica a broker and step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from kreplica.controller.context import ControllerContext
from kreplica.model import LEADER_DURING_DELETE, NO_LEADER, ZERO_UUID, LeaderAndIsr, TopicPartition
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

DELETE_WHATEVER_EPOCH = -2
"""Leader epoch in StopReplica that means: delete whatever epoch you know of (topic or partition is being deleted)."""


@dataclass(frozen=True, slots=True)
class Command:
    """One request to one broker.

    :param what: the partitions it speaks of, for the answer and for the log.
    """

    api: Api
    version: int
    body: dict[str, Any]
    what: tuple[TopicPartition, ...]
    delete: bool = False


Send = Callable[[int, Command], None]


class BrokerRequests:
    """Gathers what one step of the controller tells the brokers, then sends it all.

    Made for a step, filled by it, sent once, thrown away.  The order to each broker is LeaderAndIsr, UpdateMetadata,
    StopReplica, as brokers expect it; to one that has just joined, UpdateMetadata comes first.

    :param send: queues a command on a broker's channel.
    """

    def __init__(self, context: ControllerContext, controller_id: int, listener: str, send: Send) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = listener
        self._send = send
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._metadata: dict[int, dict[TopicPartition, None]] = {}
        self._stop: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._introduced: dict[int, None] = {}

    def lead_or_follow(self, partition: TopicPartition, brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Tell these brokers (those that live) a partition's state."""
        for broker in brokers:
            if broker in self._context.brokers:
                self._leader_and_isr[broker][partition] = is_new

    def publish(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Tell these brokers (all, where None) the metadata of these partitions (none: only who lives)."""
        partitions = dict.fromkeys(partitions)
        for broker in self._context.brokers if brokers is None else brokers:
            self._metadata.setdefault(broker, {}).update(partitions)

    def introduce(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """Tell brokers that have just joined all metadata, and that first: they need the endpoints of the leaders."""
        brokers = list(brokers)
        self._introduced.update(dict.fromkeys(brokers))
        self.publish(partitions, brokers)

    def stop(self, partition: TopicPartition, broker: int, *, delete: bool) -> None:
        """Tell a broker to stop a replica, and where asked to delete its files."""
        if broker in self._context.brokers:
            self._stop[broker][partition] = delete

    def send(self) -> None:
        informed = sorted(self._metadata.keys() & self._context.brokers.keys())
        for broker in informed:
            if broker in self._introduced:
                self._send(broker, self._form_update_metadata(broker))
        for broker in sorted(self._leader_and_isr):
            self._send(broker, self._form_leader_and_isr(broker))
        for broker in informed:
            if broker not in self._introduced:
                self._send(broker, self._form_update_metadata(broker))
        for broker in sorted(self._stop):
            for delete in (False, True):
                partitions = [p for p, deletes in self._stop[broker].items() if deletes is delete]
                if partitions:
                    self._send(broker, self._form_stop_replica(broker, partitions, delete=delete))

    # --- forms -------------------------------------------------------------------------------------------------------

    def _form_leader_and_isr(self, broker: int) -> Command:
        partitions = self._leader_and_isr[broker]
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        leaders = set()
        for partition, is_new in partitions.items():
            state = self._context.leadership[partition]
            leaders.add(state.leader)
            topics[partition.topic].append(self._partition_state(partition, state, is_new))
        body = self._head(broker) | {
            "type": 0,
            "topic_states": [
                {"topic_name": topic, "topic_id": self._topic_id(topic), "partition_states": states}
                for topic, states in topics.items()
            ],
            "live_leaders": self._live_leaders(leaders),
        }
        return Command(LEADER_AND_ISR, LEADER_AND_ISR.versions[1], body, tuple(partitions))

    def _partition_state(self, partition: TopicPartition, state: LeaderAndIsr, is_new: bool) -> dict[str, Any]:
        assignment = self._context.topics[partition.topic]
        replicas = self._context.replicas(partition)
        return {
            "partition_index": partition.partition,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "partition_epoch": state.partition_epoch,
            "replicas": list(replicas),
            "adding_replicas": list(assignment.adding.get(partition.partition, ())),
            "removing_replicas": [r for r in assignment.removing.get(partition.partition, ()) if r in replicas],
            "is_new": is_new,
            "leader_recovery_state": 0,
            "eligible_leader_replicas": list(state.eligible_leader_replicas),
            "read_only": partition.partition in assignment.read_only,
        }

    def _live_leaders(self, leaders: set[int]) -> list[dict[str, Any]]:
        found = []
        for leader in sorted(leaders & self._context.brokers.keys()):
            endpoint = self._context.brokers[leader].endpoint(self._listener)
            if endpoint is not None:
                found.append({"broker_id": leader, "host_name": endpoint.host, "port": endpoint.port})
        return found

    def _form_update_metadata(self, broker: int) -> Command:
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for partition in self._metadata[broker]:
            topics[partition.topic].append(self._metadata_of(partition))
        body = self._head(broker) | {
            "type": 0,
            "topic_states": [
                {"topic_name": topic, "topic_id": self._topic_id(topic), "partition_states": states}
                for topic, states in topics.items()
            ],
            "live_brokers": [
                {
                    "id": registration.broker_id,
                    "endpoints": [
                        {
                            "host": endpoint.host,
                            "port": endpoint.port,
                            "listener": endpoint.listener,
                            "security_protocol": SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol, 0),
                        }
                        for endpoint in registration.endpoints
                    ],
                    "rack": registration.rack,
                }
                for _, registration in sorted(self._context.brokers.items())
            ],
        }
        return Command(UPDATE_METADATA, UPDATE_METADATA.versions[1], body, tuple(self._metadata[broker]))

    def _metadata_of(self, partition: TopicPartition) -> dict[str, Any]:
        state = self._context.leadership.get(partition)
        if state is None:
            state = LeaderAndIsr(NO_LEADER, 0, (), self._context.controller_epoch)
        if partition.topic in self._context.deleting or not self._context.replicas(partition):
            state = replace(state, leader=LEADER_DURING_DELETE, isr=())
        return {
            "partition_index": partition.partition,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "zk_version": state.partition_epoch,
            "replicas": list(self._context.replicas(partition)),
            "offline_replicas": list(self._context.offline_replicas(partition)),
        }

    def _form_stop_replica(self, broker: int, partitions: list[TopicPartition], *, delete: bool) -> Command:
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for partition in partitions:
            state = self._context.leadership.get(partition)
            if state is None or partition.topic in self._context.deleting:
                epoch = DELETE_WHATEVER_EPOCH
            else:
                epoch = state.leader_epoch
            topics[partition.topic].append(
                {"partition_index": partition.partition, "leader_epoch": epoch, "delete_partition": delete}
            )
        body = self._head(broker) | {
            "topic_states": [{"topic_name": topic, "partition_states": states} for topic, states in topics.items()]
        }
        return Command(STOP_REPLICA, STOP_REPLICA.versions[1], body, tuple(partitions), delete)

    def _head(self, broker: int) -> dict[str, Any]:
        return {
            "controller_id": self._controller_id,
            "is_k_raft_controller": False,
            "controller_epoch": self._context.controller_epoch,
            "broker_epoch": self._context.brokers[broker].epoch,
        }

    def _topic_id(self, topic: str) -> Any:
        assignment = self._context.topics.get(topic)
        return assignment.topic_id if assignment else ZERO_UUID
