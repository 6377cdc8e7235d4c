"""The first design: replicas race for the leader znode, and each broker watches a state znode per replica.

Each replica watches its leader and its own state znode, and each leader watches the assignment of its partitions.
"""

from __future__ import annotations

from functools import partial

from kreplica.testing.designs import znode_paths as znodes
from kreplica.testing.designs.agent import Agent
from kreplica.testing.designs.clients import failed
from kreplica.testing.designs.replica import Replica
from kreplica.zookeeper import EventType, WatchEvent

BECOME_FOLLOWER, DELETE_REPLICA = "becomeFollower", "deleteReplica"


class RaceAgent(Agent):
    """One broker of the first design."""

    def replica_started(self, replica: Replica) -> None:
        topic, number = replica.partition.topic, replica.partition.number
        self.client.create(znodes.replica_state_path(topic, number, self.broker_id), b"")
        self._read_requests(replica)

    def leader_opened(self, replica: Replica) -> None:
        topic, number = replica.partition.topic, replica.partition.number
        self.client.get(
            znodes.replicas_path(topic, number), partial(self._assignment_changed, replica), lambda _: None
        )
        for other in replica.assigned:
            if other != self.broker_id:
                parent = znodes.replica_state_path(topic, number, other)
                self.queue_request(parent, BECOME_FOLLOWER, replica.partition)

    # --- state znode: requests of the leader -------------------------------------------------------------------------

    def _read_requests(self, replica: Replica, event: WatchEvent | None = None) -> None:
        if event is not None and event.type is not EventType.NODE_CHILDREN_CHANGED:
            return
        path = znodes.replica_state_path(replica.partition.topic, replica.partition.number, self.broker_id)
        self.client.children(path, partial(self._read_requests, replica), partial(self._requests_read, path, replica))

    def _requests_read(self, path: str, replica: Replica, names: list[str] | None) -> None:
        for name in sorted(names or ()):
            request = f"{path}/{name}"
            self.client.get(request, None, partial(self._handle_request, request, replica))

    def _handle_request(self, path: str, replica: Replica, response: tuple[bytes, int] | None) -> None:
        if response is None:
            return
        verb = znodes.decode_request(response[0])[0]
        self.client.delete(path)
        # A replica that must follow has already seen the leader's znode and follows it.
        if verb == DELETE_REPLICA:
            self.delete_replica(replica)

    # --- deletion ----------------------------------------------------------------------------------------------------

    def _assignment_changed(self, replica: Replica, event: WatchEvent) -> None:
        if event.type is not EventType.NODE_DATA_CHANGED or not self.broker.leads(replica.partition):
            return
        topic, number = replica.partition.topic, replica.partition.number
        self.client.get(
            znodes.replicas_path(topic, number),
            partial(self._assignment_changed, replica),
            partial(self._new_assignment, replica),
        )

    def _new_assignment(self, replica: Replica, response: tuple[bytes, int] | None) -> None:
        if response is not None and not response[0]:
            topic, number = replica.partition.topic, replica.partition.number
            for broker_id in replica.assigned:
                path = znodes.replica_state_path(topic, number, broker_id)
                self.queue_request(path, DELETE_REPLICA, replica.partition)

    def delete_replica(self, replica: Replica) -> None:
        """Delete the replica and its state znode; the last replica of a deleted topic deletes the partition."""
        super().delete_replica(replica)
        topic, number = replica.partition.topic, replica.partition.number
        self.client.delete(znodes.replica_state_path(topic, number, self.broker_id))
        if not replica.assigned or self.broker_id in replica.assigned:
            self.client.delete(znodes.replica_state_path(topic, number), partial(self._states_deleted, topic, number))

    def _states_deleted(self, topic: str, number: int, result: object) -> None:
        if failed(result):
            return  # another replica is left
        for path in (znodes.leader_path, znodes.isr_path, znodes.replicas_path, znodes.partition_path):
            self.client.delete(path(topic, number))
        self.client.delete(znodes.topic_path(topic))
