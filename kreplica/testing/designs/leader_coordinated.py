"""The second design: the partition's leader controls the states of its replicas through a queue znode per broker.

Only followers watch the leader znode.  Queues are persistent, so requests reach a broker even if it was down.  The
leader verifies each transition, and an invalid one ends the run.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

from kreplica.errors import KreplicaError
from kreplica.testing.designs import znode_paths as znodes
from kreplica.testing.designs.agent import Agent
from kreplica.testing.designs.layout import Partition
from kreplica.testing.designs.replica import Replica
from kreplica.zookeeper import SetData, Stat, WatchEvent

START_REPLICA, CLOSE_REPLICA, DELETE_PARTITION = "start-replica", "close-replica", "delete-partition"


class FollowerState(Enum):
    """State of another replica according to its leader."""

    UNKNOWN = "unknown"
    STARTED = "started"
    IN_SYNC = "in sync"
    CLOSED = "closed"


TRANSITIONS = {
    FollowerState.UNKNOWN: {FollowerState.STARTED, FollowerState.IN_SYNC, FollowerState.CLOSED},
    FollowerState.STARTED: {FollowerState.STARTED, FollowerState.IN_SYNC, FollowerState.CLOSED},
    FollowerState.IN_SYNC: {FollowerState.STARTED, FollowerState.IN_SYNC, FollowerState.CLOSED},
    FollowerState.CLOSED: {FollowerState.STARTED},
}
"""Next states that a leader accepts."""


class InvalidTransition(KreplicaError):
    """The leader requested a transition that is not in ``TRANSITIONS``."""


class CoordinatedAgent(Agent):
    """One broker of the second design.

    :ivar states: for partitions that this broker leads, the state of each other replica.
    """

    states: dict[Partition, dict[int, FollowerState]]
    epochs: dict[Partition, int]

    def start(self) -> None:
        self.states = {}
        self.epochs = {}
        """Latest epoch of each partition; requests of earlier epochs are ignored."""
        super().start()
        self._read_queue()

    def watches_leader(self, replica: Replica) -> bool:
        return not self.is_leader(replica)

    # --- leading -----------------------------------------------------------------------------------------------------

    def write_leadership(self, replica: Replica) -> None:
        """Increment the global epoch, which is the version of one znode, before the in-sync replicas are written."""
        self.client.write(SetData(znodes.EPOCH, b""), partial(self._epoch_incremented, replica))

    def _epoch_incremented(self, replica: Replica, result: object) -> None:
        assert isinstance(result, Stat)
        self.epochs[replica.partition] = result.version
        self.states[replica.partition] = dict.fromkeys(replica.caught_up, FollowerState.IN_SYNC)
        super().write_leadership(replica)

    def leader_opened(self, replica: Replica) -> None:
        for other in replica.assigned:
            if other != self.broker_id:
                self._send(replica.partition, other, FollowerState.STARTED, START_REPLICA)

    def _send(self, partition: Partition, broker_id: int, state: FollowerState, verb: str) -> None:
        self._verify(partition, broker_id, state)
        self.queue_request(znodes.queue_path(broker_id), verb, partition, self.epochs.get(partition, 0))

    def _verify(self, partition: Partition, broker_id: int, state: FollowerState) -> None:
        states = self.states.setdefault(partition, {})
        previous = states.get(broker_id, FollowerState.UNKNOWN)
        if state not in TRANSITIONS[previous]:
            raise InvalidTransition(f"{partition}, replica {broker_id}: from {previous.value} to {state.value}")
        states[broker_id] = state

    def fetched(self, partition: Partition, follower: int) -> None:
        if self.broker.leads(partition):
            self._verify(partition, follower, FollowerState.IN_SYNC)
        super().fetched(partition, follower)

    def reassignment_started(self, replica: Replica) -> None:
        for target in replica.reassigned or ():
            if target not in replica.assigned:
                self._send(replica.partition, target, FollowerState.STARTED, START_REPLICA)

    def reassignment_finished(self, replica: Replica, previous: tuple[int, ...]) -> None:
        for broker_id in previous:
            if broker_id not in replica.assigned and broker_id != self.broker_id:
                self._send(replica.partition, broker_id, FollowerState.CLOSED, CLOSE_REPLICA)

    def reads_target(self, partition: Partition) -> bool:
        replica = self.replicas.get(partition)
        return replica is not None and replica.reassigned is None and self.broker.leads(partition)

    # --- queue: requests of leaders ----------------------------------------------------------------------------------

    def _read_queue(self, _: WatchEvent | None = None) -> None:
        path = znodes.queue_path(self.broker_id)
        self.client.children(path, self._read_queue, self._queue_read)

    _seen_requests: frozenset[str] = frozenset()

    def _queue_read(self, names: list[str] | None) -> None:
        requests = frozenset(names or ())
        for name in sorted(requests - self._seen_requests):
            path = f"{znodes.queue_path(self.broker_id)}/{name}"
            self.client.get(path, None, partial(self._handle_request, path))
        self._seen_requests = requests

    def _handle_request(self, path: str, response: tuple[bytes, int] | None) -> None:
        if response is None:
            return
        self.client.delete(path)
        verb, topic, number, epoch = znodes.decode_request(response[0])
        partition = self._layout.find(topic, number)
        if partition is None:
            return
        replica = self.replicas.get(partition)
        if verb == DELETE_PARTITION:
            if replica is not None and self.broker.leads(partition):
                self._delete_partition(replica)
            return
        if epoch < self.epochs.get(partition, 0):
            return
        self.epochs[partition] = epoch
        if verb == CLOSE_REPLICA and replica is not None:
            self.delete_replica(replica)
        elif verb == START_REPLICA and replica is None:
            self.start_replica(partition, ())

    def _delete_partition(self, replica: Replica) -> None:
        """Queue the deletion for the other replicas, then remove the znodes: no response is needed."""
        topic, number = replica.partition.topic, replica.partition.number
        for other in replica.assigned:
            if other != self.broker_id:
                self._send(replica.partition, other, FollowerState.CLOSED, CLOSE_REPLICA)
        self.delete_replica(replica)
        for path in (znodes.leader_path, znodes.isr_path, znodes.replicas_path, znodes.partition_path):
            self.client.delete(path(topic, number))
        self.client.delete(znodes.topic_path(topic))
