"""Invariants of a simulated cluster, checked in the brokers' objects after every event, regardless of active faults.

* A partition has one leader per epoch; the leader is in the ISR; the ISR is a subset of the assignment.
* Only the most recently elected controller elects leaders.
* Epochs never decrease: the leader epoch in the znode and in each replica of one process, and the controller epoch
  known to each broker.
* A leader's high watermark never decreases while it leads, and is at most its log end offset.
* A committed record is on ``min.insync.replicas`` replicas and on every member of the ISR in the znode, even if a
  deposed leader committed it.
* A committed record is never lost: every later leader holds it.  Replicas have the same bytes below their high
  watermarks, and in-sync replicas below the highest offset ever committed.
* Only committed records are acknowledged to producers (``acks=all``) or sent to consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kreplica.cluster import documents, znodes
from kreplica.cluster.eligible_leaders import required_isr_size
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.replication.controller_fence import ControlFence
from kreplica.testing.cluster.committed_log import CommittedLog
from kreplica.testing.cluster.state import active_replicas, replicas_of, state_of
from kreplica.testing.histories.record_history import History
from kreplica.testing.simulator.scheduler import Process
from kreplica.zookeeper.embedded.znode import Znode

if TYPE_CHECKING:
    from kreplica.testing.cluster.cluster import SimulatedCluster


class InvariantViolation(AssertionError):
    """An invariant did not hold; the message names the partition and the broker."""


class _Replica:
    """State of one replica of one process at its last check.

    :ivar led_epoch: epoch in which it was the leader; None for a follower.
    :ivar led_high_watermark: its high watermark as the leader.
    """

    __slots__ = (
        "_end_offset",
        "_high_watermark",
        "_leadership",
        "_role",
        "_start_offset",
        "leader_epoch",
        "led_epoch",
        "led_high_watermark",
        "partition",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leadership.leader_epoch
        self.led_epoch: int | None = None
        self.led_high_watermark = 0
        self._remember()

    def has_changed(self) -> bool:
        """Return True if the replica has changed since the last call."""
        partition = self.partition
        if (
            partition.high_watermark == self._high_watermark
            and partition.log.log_end_offset == self._end_offset
            and partition.leadership is self._leadership
            and partition.role is self._role
            and partition.log.log_start_offset == self._start_offset
        ):
            return False
        self._remember()
        return True

    def _remember(self) -> None:
        partition = self.partition
        self._high_watermark = partition.high_watermark
        self._start_offset = partition.log.log_start_offset
        self._end_offset = partition.log.log_end_offset
        self._leadership = partition.leadership
        self._role = partition.role


class Invariants:
    """Checks the partitions that changed in an event.

    :param topic: topic to check, with all its partitions.
    :param history: requests and responses of the topic's clients; None if it has no clients.
    :ivar committed: batches that were ever below a leader's high watermark, by partition.
    :ivar check_count: number of changed replicas that were checked.
    """

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, history: History | None = None) -> None:
        self.check_count = 0
        self._cluster = cluster
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._histories: dict[TopicPartition, History] = {}
        self._paths: dict[TopicPartition, str] = {}
        self.committed: dict[TopicPartition, CommittedLog] = {}
        self._replicas: dict[int, dict[TopicPartition, _Replica]] = {number: {} for number in cluster.brokers}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._states: dict[TopicPartition, LeaderAndIsr] = {}
        self._seen: dict[str, tuple[Znode, int]] = {}
        self._fences: dict[int, tuple[object, int]] = {}
        self._controller_epoch = self._controller_since = 0
        self._zookeeper: object = None
        self.further_checks: list[Callable[[Process], None]] = []
        """Called after each event with its process."""
        self._broker_ids = {machine.host.name: number for number, machine in cluster.brokers.items()}
        for partition in range(partitions):
            self.add(TopicPartition(topic, partition), history)

    def add(
        self,
        key: TopicPartition,
        history: History | None = None,
        topic_id: UUID | None = None,
        committed: CommittedLog | None = None,
    ) -> None:
        """Check one more partition.

        :param topic_id: replicas with another topic ID, of a deleted topic of the same name, are ignored.
        :param committed: batches committed so far, if the partition was forgotten although it still exists.
        """
        self._topic_ids[key] = topic_id
        self._paths[key] = znodes.partition_state_path(*key)
        self.committed[key] = committed or CommittedLog()
        if history is not None:
            self._histories[key] = history

    def forget(self, key: TopicPartition) -> None:
        """Stop checking a deleted partition; a later partition of the same name is a new partition."""
        dictionaries: tuple[dict[TopicPartition, Any], ...] = (
            self._topic_ids,
            self._histories,
            self.committed,
            self._states,
            *self._replicas.values(),
        )
        for dictionary in dictionaries:
            dictionary.pop(key, None)
        self._seen.pop(self._paths.pop(key), None)
        for led in [led for led in self._leaders if led[0] == key]:
            del self._leaders[led]

    def watch(self) -> None:
        """Check after every event from now on; only the process that handled the event can have changed."""
        self._cluster.simulation.scheduler.after_event = self._after_event

    def _after_event(self, process: Process) -> None:
        host = process.host
        broker_id = self._broker_ids.get(host)
        if broker_id is not None:
            self._check_broker(broker_id)
        elif host.startswith("coordinator"):
            self._check_zookeeper()
        elif host != "network":
            self._check_clients()
        for check in self.further_checks:
            check(process)

    def check(self) -> None:
        """Check all processes that changed since their last check.

        :raise InvariantViolation: an invariant does not hold.
        """
        self._check_zookeeper()
        for broker_id in self._broker_ids.values():
            self._check_broker(broker_id)
        self._check_clients()

    # --- changes -----------------------------------------------------------------------------------------------------

    def _check_zookeeper(self) -> None:
        machine = self._cluster.zookeeper
        serving = machine.program.serving if machine.running else None
        if serving is None:
            return
        if machine.program is not self._zookeeper:
            # Writes that were not acknowledged may be lost after a crash, so older states are not comparable.
            self._zookeeper = machine.program
            self._states.clear()
            self._seen.clear()
            self._controller_epoch = self._controller_since = 0
        nodes = serving.tree.nodes
        node = nodes.get(znodes.CONTROLLER_EPOCH)
        if node is not None and self._is_changed(znodes.CONTROLLER_EPOCH, node):
            epoch = documents.decode_controller_epoch(node.data or b"")
            if epoch < self._controller_epoch:
                raise _violation("the controller epoch decreased", epoch, self._controller_epoch)
            self._controller_epoch, self._controller_since = epoch, node.mzxid
        for key, path in self._paths.items():
            node = nodes.get(path)
            if node is not None and self._is_changed(path, node):
                self._check_state(key, node.mzxid)
                self._check_replicas(key)

    def _is_changed(self, path: str, node: Znode) -> bool:
        previous = self._seen.get(path)
        if previous is not None and previous[0] is node and previous[1] == node.version:
            return False
        self._seen[path] = node, node.version
        return True

    def _check_broker(self, broker_id: int) -> None:
        machine = self._cluster.brokers[broker_id]
        if not machine.running:
            return
        program = machine.program
        self._check_fence(broker_id, program.fence)
        known, get = self._replicas[broker_id], program.partitions.get
        for key, topic_id in self._topic_ids.items():
            partition = get(key)
            if partition is None or (topic_id is not None and partition.topic_id != topic_id):
                continue
            replica = known.get(key)
            if replica is None or replica.partition is not partition:
                replica = known[key] = _Replica(partition)
            elif not replica.has_changed():
                continue
            if partition.role.is_active:
                self._check_replica(key, broker_id, replica)
            elif replica.led_epoch is not None:
                self._check_last_commit(key, broker_id, replica, replica.led_epoch)

    def _check_fence(self, broker_id: int, fence: ControlFence) -> None:
        previous = self._fences.get(broker_id)
        if previous is None or previous[0] is not fence or previous[1] != fence.controller_epoch:
            if previous is not None and previous[0] is fence and fence.controller_epoch < previous[1]:
                raise _violation("a broker accepts an older controller", broker_id)
            self._fences[broker_id] = fence, fence.controller_epoch

    # --- partitions --------------------------------------------------------------------------------------------------

    def _check_replica(self, key: TopicPartition, broker_id: int, replica: _Replica) -> None:
        """Check a replica that changed; other replicas need a check only if its commit raises their required offset."""
        self.check_count += 1
        state, committed = state_of(self._cluster, key), self.committed[key]
        partition = replica.partition
        committed.start_offset = max(committed.start_offset, partition.log.log_start_offset)
        self._check_leadership(key, broker_id, replica)
        self._check_committed(key, broker_id, partition, state)
        if partition.is_leader and partition.high_watermark > committed.end_offset:
            replicas = dict(self._active_replicas(key))
            self._check_commit(key, broker_id, partition, replicas, state, partition.leadership.leader_epoch)
            for other_id, other in replicas.items():
                self._check_committed(key, other_id, other, state)

    def _check_last_commit(self, key: TopicPartition, broker_id: int, replica: _Replica, epoch: int) -> None:
        """Check what a leader committed in the event in which it stopped leading, since clients may rely on it."""
        replica.led_epoch = None
        partition = replica.partition
        if partition.high_watermark > self.committed[key].end_offset:
            replicas = dict(self._active_replicas(key)) | {broker_id: partition}
            self._check_commit(key, broker_id, partition, replicas, state_of(self._cluster, key), epoch)

    def _check_replicas(self, key: TopicPartition) -> None:
        """Check all replicas after a change of the state znode, which changes their required offsets."""
        for broker_id, partition in self._active_replicas(key):
            replica = self._replicas[broker_id].get(key)
            if replica is None or replica.partition is not partition:
                replica = self._replicas[broker_id][key] = _Replica(partition)
            replica.has_changed()
            self._check_replica(key, broker_id, replica)

    def _active_replicas(self, key: TopicPartition) -> Iterator[tuple[int, Partition]]:
        topic_id = self._topic_ids[key]
        for broker_id, partition in active_replicas(self._cluster, key):
            if topic_id is None or partition.topic_id == topic_id:
                yield broker_id, partition

    def _check_state(self, key: TopicPartition, zxid: int) -> None:
        previous, state = self._states.get(key), state_of(self._cluster, key)
        assert state is not None
        if previous is not None:
            if state.leader_epoch < previous.leader_epoch:
                raise _violation(f"{key}: the leader epoch decreased", previous, state)
            is_led = NO_LEADER not in (state.leader, previous.leader)
            if is_led and state.leader_epoch == previous.leader_epoch and state.leader != previous.leader:
                raise _violation(f"{key}: two leaders in one epoch", previous, state)
            is_elected = state.leader_epoch > previous.leader_epoch and zxid > self._controller_since
            if is_elected and state.controller_epoch != self._controller_epoch:
                raise _violation(
                    f"{key}: written by controller {state.controller_epoch} after {self._controller_epoch} was elected",
                    state,
                )
        assigned = replicas_of(self._cluster, key)
        if assigned:
            if not set(state.isr) <= set(assigned):
                raise _violation(f"{key}: in sync, but not assigned", state, assigned)
            if not set(state.eligible_leader_replicas) <= set(assigned):
                raise _violation(f"{key}: eligible, but not assigned", state)
        if state.leader not in (NO_LEADER, *state.isr):
            raise _violation(f"{key}: the leader is not in sync", state)
        self._states[key] = state

    def _check_leadership(self, key: TopicPartition, broker_id: int, replica: _Replica) -> None:
        partition = replica.partition
        epoch = partition.leadership.leader_epoch
        if epoch < replica.leader_epoch:
            raise _violation(f"{key} on {broker_id}: the leader epoch decreased", epoch)
        replica.leader_epoch = epoch
        high_watermark, end = partition.high_watermark, partition.log.log_end_offset
        if high_watermark > end:
            raise _violation(f"{key} on {broker_id}: committed beyond its log", high_watermark, end)
        if not partition.is_leader:
            replica.led_epoch = None
            return
        leader = self._leaders.setdefault((key, epoch), broker_id)
        if leader != broker_id:
            raise _violation(f"{key}: two leaders act in epoch {epoch}", leader, broker_id)
        if replica.led_epoch == epoch:
            if high_watermark < replica.led_high_watermark:
                raise _violation(f"{key} on {broker_id}: the high watermark decreased")
        else:
            committed = self.committed[key].end_before(epoch)
            if end < committed:
                raise _violation(f"{key}: {broker_id} leads in epoch {epoch} without all commits", end, committed)
        replica.led_epoch, replica.led_high_watermark = epoch, high_watermark

    def _check_commit(
        self,
        key: TopicPartition,
        leader: int,
        partition: Partition,
        replicas: dict[int, Partition],
        state: LeaderAndIsr | None,
        epoch: int,
    ) -> None:
        """Check that enough replicas hold the records below a new high watermark, and record the commit."""
        high_watermark = partition.high_watermark
        if state is None:
            state = self._states.get(key)  # the ZooKeeper server is not serving: use the last known state
        holders = {broker for broker, other in replicas.items() if other.log.log_end_offset >= high_watermark}
        in_sync = () if state is None else state.isr
        may_lead = () if state is None else (*in_sync, *state.eligible_leader_replicas)
        absent = {broker: self._last_end_offset(key, broker) for broker in may_lead if broker not in replicas}
        holders.update(broker for broker, end in absent.items() if end is None or end >= high_watermark)
        for broker in in_sync:
            if broker in absent and broker not in holders:
                raise _violation(
                    f"{key}: {broker} is in sync without all committed records", absent[broker], high_watermark
                )
        if len(holders) < required_isr_size(partition.min_insync_replicas, len(partition.leadership.replicas)):
            raise _violation(f"{key}: {leader} commits {high_watermark} with too few replicas", holders)
        disk = self._cluster.brokers[leader].host.disk
        self.committed[key].extend(leader, disk, partition.log, high_watermark, epoch)

    def _last_end_offset(self, key: TopicPartition, broker_id: int) -> int | None:
        """Return the log end offset that an inactive replica had when it was last active; None if it never was.

        The leader may count a fetch that arrives after the replica's process has ended.
        """
        replica = self._replicas.get(broker_id, {}).get(key)
        return None if replica is None else replica.partition.log.log_end_offset

    def _check_committed(
        self, key: TopicPartition, broker_id: int, partition: Partition, state: LeaderAndIsr | None
    ) -> None:
        """Check that a replica holds the committed records, byte for byte."""
        committed, end = self.committed[key], partition.log.log_end_offset
        limit = committed.end_offset
        if state is not None and broker_id in state.isr:
            if end < limit:
                raise _violation(f"{key}: {broker_id} is in sync without all committed records", end, limit)
        else:
            limit = min(partition.high_watermark, limit)
        difference = committed.compare(broker_id, self._cluster.brokers[broker_id].host.disk, partition.log, limit)
        if difference is not None:
            raise _violation(f"{key} on {broker_id}: {difference}")

    def _check_clients(self) -> None:
        for key, history in self._histories.items():
            end = self.committed[key].end_offset
            acknowledged_end, read_end = history.ends(key.partition)
            if acknowledged_end > end:
                raise _violation(f"{key}: acknowledged, but not committed", acknowledged_end, end)
            if read_end > end:
                raise _violation(f"{key}: read, but not committed", read_end, end)


def _violation(text: str, *values: object) -> InvariantViolation:
    return InvariantViolation(": ".join([text, ", ".join(map(str, values))]) if values else text)
