"""Code shared by the first two designs: replicas race for an ephemeral leader znode, and the winner leads.

An agent coordinates one broker with the other brokers.  It finds its replicas in ZooKeeper, runs for election, and as a
leader maintains the in-sync replicas and finishes reassignments.  ``race`` and ``leader_coordinated`` define how
state changes reach other replicas.

If the design documents do not specify a step, the agent uses the cheaper way; docs/decisions/0046 lists these steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from kreplica.testing.designs import znode_paths as znodes
from kreplica.testing.designs.clients import AgentClient, failed
from kreplica.testing.designs.counts import Counts
from kreplica.testing.designs.layout import Layout, Partition
from kreplica.testing.designs.light_broker import LightBroker
from kreplica.testing.designs.replica import Replica
from kreplica.testing.simulator.scheduler import Scheduler
from kreplica.zookeeper import Create, EventType, WatchEvent
from kreplica.zookeeper.embedded.znode import Znode

BALANCE_INTERVAL_S = 0.01
"""Interval between a leader's commits in different partitions."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timing parameters of the designs; the documents give no values.

    :param leader_election_s: LeaderElectionWaitTime: maximum time that a new leader waits for the other live replicas.
    :param keep_in_sync_s: KeepInSyncTime: time after which a silent follower leaves the in-sync replicas.
    :param preferred_replica_s: PreferredReplicaTime: head start of the preferred replica in an election.
    """

    leader_election_s: float = 1.0
    keep_in_sync_s: float = 10.0
    preferred_replica_s: float = 0.05


class Agent:
    """One broker of the design ``race`` or ``leader``; a new object for each session."""

    def __init__(
        self,
        broker: LightBroker,
        client: AgentClient,
        layout: Layout,
        scheduler: Scheduler,
        timeouts: Timeouts,
        counts: Counts,
    ) -> None:
        self.broker = broker
        self.client = client
        self.replicas: dict[Partition, Replica] = {}
        self._layout = layout
        self._scheduler = scheduler
        self._timeouts = timeouts
        self.counts = counts
        self._topics: set[str] = set()
        self._reassigned_topics: set[str] = set()
        self._electing: dict[Partition, Replica] = {}
        broker.electing = self._electing
        broker.listener = self

    @property
    def broker_id(self) -> int:
        return self.broker.broker_id

    # --- startup -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register the broker, set its watches, and start its replicas."""
        self.client.create(znodes.broker_path(self.broker_id), b"127.0.0.1:9092", ephemeral=True)
        self._read_topics()
        self._read_reassigned_topics()

    def close(self) -> None:
        """End the session."""
        self.client.close()
        for replica in self._electing.values():
            if replica.open_timer is not None and replica.open_timer.active():
                replica.open_timer.cancel()
        self._electing.clear()

    def _read_topics(self, _: WatchEvent | None = None) -> None:
        self.client.children(znodes.TOPICS, self._read_topics, self._topics_read)

    def _topics_read(self, names: list[str] | None) -> None:
        topics = set(names or ())
        for topic in sorted(topics - self._topics):
            self._read_topic(topic)
        self._topics = topics

    def _read_topic(self, topic: str) -> None:
        self.client.children(
            znodes.topic_path(topic), partial(self._topic_changed, topic), partial(self._topic_read, topic)
        )

    def _topic_changed(self, topic: str, event: WatchEvent) -> None:
        if event.type is EventType.NODE_CHILDREN_CHANGED:
            self._read_topic(topic)

    def _topic_read(self, topic: str, names: list[str] | None) -> None:
        for name in names or ():
            partition = self._layout.get(topic, int(name))
            if partition not in self.replicas:
                path = znodes.replicas_path(topic, partition.number)
                self.client.get(path, None, partial(self._assignment_read, partition))

    def _assignment_read(self, partition: Partition, response: tuple[bytes, int] | None) -> None:
        if response is not None:
            assigned = znodes.decode_ids(response[0])
            if self.broker_id in assigned and partition not in self.replicas:
                self.start_replica(partition, assigned)

    def start_replica(self, partition: Partition, assigned: tuple[int, ...]) -> None:
        """Start a replica of this broker: find or elect its leader."""
        self.replicas[partition] = replica = Replica(partition, assigned)
        self.replica_started(replica)
        self.look_for_leader(replica)

    def replica_started(self, replica: Replica) -> None:
        """Set the watches that only one design needs."""

    # --- election ----------------------------------------------------------------------------------------------------

    def look_for_leader(self, replica: Replica) -> None:
        """Read the leader and watch it; run for election if there is none."""
        path = znodes.leader_path(replica.partition.topic, replica.partition.number)
        self.client.exists(path, partial(self._leader_changed, replica), partial(self._leader_looked_up, replica))

    def _leader_looked_up(self, replica: Replica, node: Znode | None) -> None:
        if node is None:
            self._run_for_election(replica)
            return
        replica.has_leader = True
        if not self.is_leader(replica):
            path = znodes.leader_path(replica.partition.topic, replica.partition.number)
            self.client.get(path, None, partial(self._leader_read, replica))

    def _leader_changed(self, replica: Replica, event: WatchEvent) -> None:
        if replica.partition not in self.replicas:
            return
        path = znodes.leader_path(replica.partition.topic, replica.partition.number)
        replica.has_leader = event.type is not EventType.NODE_DELETED
        if not replica.has_leader:
            self._stop_leading(replica)
            self.look_for_leader(replica)
        elif self.watches_leader(replica):
            self.client.get(path, partial(self._leader_changed, replica), partial(self._leader_read, replica))

    def watches_leader(self, replica: Replica) -> bool:
        """Return True if the replica watches its leader after an election."""
        return True

    def _leader_read(self, replica: Replica, response: tuple[bytes, int] | None) -> None:
        if response is None:
            self.look_for_leader(replica)
            return
        leader = int(response[0])
        if leader != self.broker_id and not self.is_leader(replica):
            self.broker.follow(replica.partition, leader, response[1])

    def is_leader(self, replica: Replica) -> bool:
        """Return True if this broker has won the election of the replica's partition."""
        return replica.partition in self._electing or self.broker.leads(replica.partition)

    def _run_for_election(self, replica: Replica) -> None:
        topic, number = replica.partition.topic, replica.partition.number
        isr: list[tuple[int, ...]] = []

        def isr_read(response: tuple[bytes, int] | None) -> None:
            isr.append(znodes.decode_ids(response[0]) if response else ())

        def assignment_read(response: tuple[bytes, int] | None) -> None:
            self._become_candidate(replica, isr[0], znodes.decode_ids(response[0]) if response else ())

        self.client.get(znodes.isr_path(topic, number), None, isr_read)
        self.client.get(znodes.replicas_path(topic, number), None, assignment_read)

    def _become_candidate(self, replica: Replica, isr: tuple[int, ...], assigned: tuple[int, ...]) -> None:
        if replica.partition not in self.replicas:
            return
        replica.assigned = assigned
        if self.broker_id not in assigned:
            self.delete_replica(replica)
        elif isr and self.broker_id not in isr:
            return
        elif assigned[0] == self.broker_id:
            self._race(replica)
        else:
            self._scheduler.post(self.broker.process, self._timeouts.preferred_replica_s, self._race, replica)

    def _race(self, replica: Replica) -> None:
        topic, number = replica.partition.topic, replica.partition.number
        if replica.has_leader or replica.partition not in self.replicas:
            return  # the preferred replica was elected in the meantime
        data = str(self.broker_id).encode()
        self.client.create(
            znodes.leader_path(topic, number), data, partial(self._leader_created, replica), ephemeral=True
        )

    def _leader_created(self, replica: Replica, result: object) -> None:
        if not failed(result):
            self._elected(replica)

    # --- becoming leader ---------------------------------------------------------------------------------------------

    def _elected(self, replica: Replica) -> None:
        """Wait until every live replica has caught up, or LeaderElectionWaitTime has passed."""
        self._electing[replica.partition] = replica
        replica.caught_up = set()
        replica.live = None
        replica.open_timer = self._scheduler.post(
            self.broker.process, self._timeouts.leader_election_s, self._open_now, replica
        )
        self.client.children(znodes.IDS, None, partial(self._live_read, replica))

    def _live_read(self, replica: Replica, names: list[str] | None) -> None:
        replica.live = set(map(int, names or ())) & set(replica.assigned) - {self.broker_id}
        self._open_if_caught_up(replica)

    def _open_if_caught_up(self, replica: Replica) -> None:
        if replica.live is not None and replica.live <= replica.caught_up:
            self._open_now(replica)

    def _open_now(self, replica: Replica) -> None:
        if replica.open_timer is None:
            return
        if replica.open_timer.active():
            replica.open_timer.cancel()
        replica.open_timer = None
        if replica.partition in self._electing:
            self.write_leadership(replica)

    def write_leadership(self, replica: Replica) -> None:
        """Write the in-sync replicas, read a pending reassignment, then accept writes."""
        topic, number = replica.partition.topic, replica.partition.number
        caught_up = {self.broker_id, *replica.caught_up}
        replica.in_sync = tuple(broker_id for broker_id in replica.assigned if broker_id in caught_up)
        self.client.set(znodes.isr_path(topic, number), znodes.encode_ids(replica.in_sync))
        self.client.get(znodes.reassigned_path(topic, number), None, partial(self._reassignment_read, replica))

    def _reassignment_read(self, replica: Replica, response: tuple[bytes, int] | None) -> None:
        replica.reassigned = znodes.decode_ids(response[0]) if response else None
        if self._electing.pop(replica.partition, None) is None:
            return
        self.broker.lead(replica.partition, 0)
        self.leader_opened(replica)
        missing = replica.caught_up.difference(replica.in_sync)
        if missing:  # fetched while the in-sync replicas were being written
            self._write_isr(replica, (*replica.in_sync, *sorted(missing)))
        self._check_leadership(replica)

    def leader_opened(self, replica: Replica) -> None:
        """Send requests to the other replicas."""

    def _stop_leading(self, replica: Replica) -> None:
        self._electing.pop(replica.partition, None)
        if self.broker.leads(replica.partition):
            self.broker.stop(replica.partition)

    # --- leading -----------------------------------------------------------------------------------------------------

    def fetched(self, partition: Partition, follower: int) -> None:
        """Handle a fetch from a follower that has caught up."""
        replica = self.replicas.get(partition)
        if replica is None:
            return
        replica.caught_up.add(follower)
        if partition in self._electing:
            self._open_if_caught_up(replica)
        elif self.broker.leads(partition) and follower not in replica.in_sync:
            self._write_isr(replica, (*replica.in_sync, follower))
            self._check_leadership(replica)

    def _write_isr(self, replica: Replica, in_sync: Iterable[int]) -> None:
        replica.in_sync = tuple(in_sync)
        path = znodes.isr_path(replica.partition.topic, replica.partition.number)
        self.client.set(path, znodes.encode_ids(replica.in_sync))

    def drop(self, follower: int) -> None:
        """Remove a follower that has been silent for KeepInSyncTime from the in-sync replicas."""
        for replica in self.replicas.values():
            if follower in replica.in_sync and self.broker.leads(replica.partition):
                replica.caught_up.discard(follower)
                self._write_isr(replica, (broker_id for broker_id in replica.in_sync if broker_id != follower))

    def balance(self) -> None:
        """Resign as leader of partitions whose preferred replica is in sync (``checkLoadBalancing``).

        A leader checks this when it commits, so it checks one partition every ``BALANCE_INTERVAL_S``.
        """
        partitions = [partition for partition in self.replicas if self.broker.leads(partition)]
        for number, partition in enumerate(partitions):
            self._scheduler.post(self.broker.process, number * BALANCE_INTERVAL_S, self._check_preferred, partition)

    def _check_preferred(self, partition: Partition) -> None:
        replica = self.replicas.get(partition)
        if replica is not None and self.broker.leads(partition):
            preferred = replica.assigned[0]
            if preferred != self.broker_id and preferred in replica.in_sync:
                self._resign(replica)

    def _check_leadership(self, replica: Replica) -> None:
        if not self.broker.leads(replica.partition):
            return
        if replica.reassigned is not None and set(replica.reassigned) <= {*replica.in_sync, self.broker_id}:
            self._finish_reassignment(replica, replica.reassigned)

    def _resign(self, replica: Replica) -> None:
        watches = self.watches_leader(replica)
        self._stop_leading(replica)
        self.client.delete(znodes.leader_path(replica.partition.topic, replica.partition.number))
        if not watches:
            self.look_for_leader(replica)

    # --- reassignment ------------------------------------------------------------------------------------------------

    def _read_reassigned_topics(self, _: WatchEvent | None = None) -> None:
        self.client.children(znodes.REASSIGNED, self._read_reassigned_topics, self._reassigned_topics_read)

    def _reassigned_topics_read(self, names: list[str] | None) -> None:
        topics = set(names or ())
        for topic in sorted(topics - self._reassigned_topics):
            self._read_reassigned(topic)
        self._reassigned_topics = topics

    def _read_reassigned(self, topic: str, event: WatchEvent | None = None) -> None:
        if event is None or event.type is EventType.NODE_CHILDREN_CHANGED:
            self.client.children(
                znodes.reassigned_path(topic), partial(self._read_reassigned, topic), partial(self._targets, topic)
            )

    def _targets(self, topic: str, names: list[str] | None) -> None:
        for name in names or ():
            partition = self._layout.get(topic, int(name))
            if self.reads_target(partition):
                path = znodes.reassigned_path(topic, partition.number)
                self.client.get(path, None, partial(self._target_read, partition))

    def reads_target(self, partition: Partition) -> bool:
        """Return True if this broker must read the target of a partition's reassignment."""
        replica = self.replicas.get(partition)
        return replica is None or (replica.reassigned is None and self.broker.leads(partition))

    def _target_read(self, partition: Partition, response: tuple[bytes, int] | None) -> None:
        if response is None:
            return
        targets = znodes.decode_ids(response[0])
        replica = self.replicas.get(partition)
        if replica is not None and self.broker.leads(partition):
            replica.reassigned = targets
            self.reassignment_started(replica)
            self._check_leadership(replica)
        elif replica is None and self.broker_id in targets:
            self.start_replica(partition, targets)

    def reassignment_started(self, replica: Replica) -> None:
        """Handle the target of a reassignment, which the leader has read."""

    def _finish_reassignment(self, replica: Replica, targets: tuple[int, ...]) -> None:
        topic, number = replica.partition.topic, replica.partition.number
        previous = replica.assigned
        self._write_isr(replica, dict.fromkeys((*targets, *replica.in_sync)))
        self.client.set(znodes.replicas_path(topic, number), znodes.encode_ids(targets))
        replica.assigned, replica.reassigned = targets, None
        self.reassignment_finished(replica, previous)
        self._resign(replica)
        self.client.delete(znodes.reassigned_path(topic, number))

    def reassignment_finished(self, replica: Replica, previous: tuple[int, ...]) -> None:
        """Handle a changed assignment.

        :param previous: the previous assignment.
        """

    # --- requests ----------------------------------------------------------------------------------------------------

    def queue_request(self, parent: str, verb: str, partition: Partition, epoch: int = 0) -> None:
        """Queue a state-change request for a broker."""
        self.counts.queued += 1
        data = znodes.encode_request(verb, partition.topic, partition.number, epoch)
        self.client.write(Create(f"{parent}/{znodes.REQUEST_PREFIX}", data, sequence=True))

    def delete_replica(self, replica: Replica) -> None:
        """Stop and delete a replica."""
        self.replicas.pop(replica.partition, None)
        self._electing.pop(replica.partition, None)
        self.broker.delete(replica.partition)
