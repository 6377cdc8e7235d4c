"""What must hold after every event of a simulated cluster, whatever fails: looked up in the brokers' own objects.

The rules, as ``BrokenRule`` names them:

* one leader an epoch; the leader is in sync; the in-sync set is within the assignment
* only the last elected controller elects leaders
* epochs never go back: of the znode, of each replica in one process, of each broker's controller
* a leader's high watermark never goes back while it leads, and is no further than its log
* what is committed is on as many replicas as the topic asks for, and on every member of the true in-sync set (the
  znode's), whichever broker believes that it leads
* what was committed once stays: every later leader has it, and every replica agrees byte for byte below its high
  watermark, every in-sync one below all that was ever committed
* no client was told of, or given, a record that is not committed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kreplica.cluster import documents, znodes
from kreplica.cluster.eligible_leaders import required
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.replication.fencing import ControlFence
from kreplica.testing.cluster.committed_log import CommittedLog
from kreplica.testing.cluster.state import ACTING, acting, replicas_of, state_of
from kreplica.testing.histories.record_history import History
from kreplica.testing.simulator.scheduler import Process
from kreplica.zookeeper.embedded.znode import Znode

if TYPE_CHECKING:
    from kreplica.testing.cluster.cluster import SimulatedCluster


class BrokenRule(AssertionError):
    """A rule that did not hold, and where."""


class _Replica:
    """One replica in one process, as it was when last looked at.

    :ivar led_epoch: the leader epoch that it led in then; None where it did not lead.
    :ivar led_high_watermark: its high watermark then.
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
        self._note()

    def has_changed(self) -> bool:
        """Whether anything is different since the last time that this was asked."""
        partition = self.partition
        if (
            partition.high_watermark == self._high_watermark
            and partition.log.log_end_offset == self._end_offset
            and partition.leadership is self._leadership
            and partition.role is self._role
            and partition.log.log_start_offset == self._start_offset
        ):
            return False
        self._note()
        return True

    def _note(self) -> None:
        partition = self.partition
        self._high_watermark = partition.high_watermark
        self._start_offset = partition.log.log_start_offset
        self._end_offset = partition.log.log_end_offset
        self._leadership = partition.leadership
        self._role = partition.role


class Invariants:
    """Checks partitions after each event; it costs little where nothing has changed.

    :param topic: whose partitions are checked from the beginning to the end.
    :param history: what its clients were told; None where nobody is.
    :ivar committed: of each partition, what was ever below a leader's high watermark.
    :ivar checks_count: how often something had changed and was checked.
    """

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, history: History | None = None) -> None:
        self.checks_count = 0
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
        self._coordinator: object = None
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
        """Check one more partition, which is new.

        :param topic_id: only replicas of this topic are meant, and none that is left of another of its name.
        :param committed: what was committed of it already, where it was thought to be gone and is not.
        """
        self._topic_ids[key] = topic_id
        self._paths[key] = znodes.partition_state_path(*key)
        self.committed[key] = committed or CommittedLog()
        if history is not None:
            self._histories[key] = history

    def forget(self, key: TopicPartition) -> None:
        """Check a partition no more: it is gone, and what bears its name from now on is another."""
        by_key: tuple[dict[TopicPartition, Any], ...] = (
            self._topic_ids,
            self._histories,
            self.committed,
            self._states,
            *self._replicas.values(),
        )
        for known in by_key:
            known.pop(key, None)
        self._seen.pop(self._paths.pop(key), None)
        for led in [led for led in self._leaders if led[0] == key]:
            del self._leaders[led]

    def watch(self) -> None:
        """Check after every event from now on: that whose process it happened to, for nothing else can have changed."""
        self._cluster.simulation.scheduler.after_event = self._after

    def _after(self, process: Process) -> None:
        host = process.host
        broker_id = self._broker_ids.get(host)
        if broker_id is not None:
            self._check_broker(broker_id)
        elif host == "coordinator":
            self._check_coordinator()
        elif host != "network":
            self._check_clients()

    def check(self) -> None:
        """Check whatever changed since the last time, anywhere.

        :raise BrokenRule: where a rule does not hold.
        """
        self._check_coordinator()
        for broker_id in self._broker_ids.values():
            self._check_broker(broker_id)
        self._check_clients()

    # --- who changed -------------------------------------------------------------------------------------------------

    def _check_coordinator(self) -> None:
        machine = self._cluster.coordinator
        serving = machine.program.serving if machine.running else None
        if serving is None:
            return
        if machine.program is not self._coordinator:
            # What nobody was told of may be gone after a crash.
            self._coordinator = machine.program
            self._states.clear()
            self._seen.clear()
            self._controller_epoch = self._controller_since = 0
        nodes = serving.tree.nodes
        node = nodes.get(znodes.CONTROLLER_EPOCH)
        if node is not None and self._is_news(znodes.CONTROLLER_EPOCH, node):
            epoch = documents.decode_controller_epoch(node.data or b"")
            if epoch < self._controller_epoch:
                raise _broken("the controller epoch went back", epoch, self._controller_epoch)
            self._controller_epoch, self._controller_since = epoch, node.mzxid
        for key, path in self._paths.items():
            node = nodes.get(path)
            if node is not None and self._is_news(path, node):
                self._check_state(key, node.mzxid)
                self._check_replicas(key)

    def _is_news(self, path: str, node: Znode) -> bool:
        seen = self._seen.get(path)
        if seen is not None and seen[0] is node and seen[1] == node.version:
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
            if partition.role in ACTING:
                self._check_replica(key, broker_id, replica)
            elif replica.led_epoch is not None:
                self._check_last_commit(key, broker_id, replica, replica.led_epoch)

    def _check_fence(self, broker_id: int, fence: ControlFence) -> None:
        before = self._fences.get(broker_id)
        if before is None or before[0] is not fence or before[1] != fence.controller_epoch:
            if before is not None and before[0] is fence and fence.controller_epoch < before[1]:
                raise _broken("a broker obeys an older controller", broker_id)
            self._fences[broker_id] = fence, fence.controller_epoch

    # --- partitions --------------------------------------------------------------------------------------------------

    def _check_replica(self, key: TopicPartition, broker_id: int, replica: _Replica) -> None:
        """One replica has changed: of the others only what they must have can have."""
        self.checks_count += 1
        state, committed = state_of(self._cluster, key), self.committed[key]
        partition = replica.partition
        committed.start_offset = max(committed.start_offset, partition.log.log_start_offset)
        self._check_tenure(key, broker_id, replica)
        self._check_bytes(key, broker_id, partition, state)
        if partition.is_leader and partition.high_watermark > committed.end_offset:
            replicas = dict(self._acting(key))
            self._check_commit(key, broker_id, partition, replicas, state, partition.leadership.leader_epoch)
            for other_id, other in replicas.items():
                self._check_bytes(key, other_id, other, state)

    def _check_last_commit(self, key: TopicPartition, broker_id: int, replica: _Replica, epoch: int) -> None:
        """What a leader committed in the very event in which it ceased to lead: clients may have been told."""
        replica.led_epoch = None
        partition = replica.partition
        if partition.high_watermark > self.committed[key].end_offset:
            replicas = dict(self._acting(key)) | {broker_id: partition}
            self._check_commit(key, broker_id, partition, replicas, state_of(self._cluster, key), epoch)

    def _check_replicas(self, key: TopicPartition) -> None:
        """The state has changed, and with it what is expected of every replica."""
        for broker_id, partition in self._acting(key):
            replica = self._replicas[broker_id].get(key)
            if replica is None or replica.partition is not partition:
                replica = self._replicas[broker_id][key] = _Replica(partition)
            replica.has_changed()
            self._check_replica(key, broker_id, replica)

    def _acting(self, key: TopicPartition) -> Iterator[tuple[int, Partition]]:
        """The brokers that lead or follow it, with their replicas."""
        topic_id = self._topic_ids[key]
        for broker_id, partition in acting(self._cluster, key):
            if topic_id is None or partition.topic_id == topic_id:
                yield broker_id, partition

    def _check_state(self, key: TopicPartition, zxid: int) -> None:
        before, state = self._states.get(key), state_of(self._cluster, key)
        assert state is not None
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                raise _broken(f"{key}: the leader epoch went back", before, state)
            is_led = NO_LEADER not in (state.leader, before.leader)
            if is_led and state.leader_epoch == before.leader_epoch and state.leader != before.leader:
                raise _broken(f"{key}: two leaders in one epoch", before, state)
            is_elected = state.leader_epoch > before.leader_epoch and zxid > self._controller_since
            if is_elected and state.controller_epoch != self._controller_epoch:
                raise _broken(
                    f"{key}: written by controller {state.controller_epoch} after {self._controller_epoch} was elected",
                    state,
                )
        assigned = replicas_of(self._cluster, key)
        if assigned:
            if not set(state.isr) <= set(assigned):
                raise _broken(f"{key}: in sync, but not assigned", state, assigned)
            if not set(state.eligible_leader_replicas) <= set(assigned):
                raise _broken(f"{key}: eligible, but not assigned", state)
        if state.leader not in (NO_LEADER, *state.isr):
            raise _broken(f"{key}: the leader is not in sync", state)
        self._states[key] = state

    def _check_tenure(self, key: TopicPartition, broker_id: int, replica: _Replica) -> None:
        """What holds for one replica by itself."""
        partition = replica.partition
        epoch = partition.leadership.leader_epoch
        if epoch < replica.leader_epoch:
            raise _broken(f"{key} on {broker_id}: the leader epoch went back", epoch)
        replica.leader_epoch = epoch
        high_watermark, end = partition.high_watermark, partition.log.log_end_offset
        if high_watermark > end:
            raise _broken(f"{key} on {broker_id}: committed beyond its log", high_watermark, end)
        if not partition.is_leader:
            replica.led_epoch = None
            return
        leader = self._leaders.setdefault((key, epoch), broker_id)
        if leader != broker_id:
            raise _broken(f"{key}: two leaders act in epoch {epoch}", leader, broker_id)
        if replica.led_epoch == epoch:
            if high_watermark < replica.led_high_watermark:
                raise _broken(f"{key} on {broker_id}: the high watermark went back")
        else:
            committed = self.committed[key].end_before(epoch)
            if end < committed:
                raise _broken(f"{key}: {broker_id} leads in epoch {epoch} without all commits", end, committed)
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
        """What holds of a high watermark when it moves."""
        high_watermark = partition.high_watermark
        if state is None:
            state = self._states.get(key)  # no coordinator serves: the last one holds
        holders = {broker for broker, other in replicas.items() if other.log.log_end_offset >= high_watermark}
        in_sync = () if state is None else state.isr
        may_lead = () if state is None else (*in_sync, *state.eligible_leader_replicas)
        absent = {broker: self._had(key, broker) for broker in may_lead if broker not in replicas}
        holders.update(broker for broker, end in absent.items() if end is None or end >= high_watermark)
        for broker in in_sync:
            if broker in absent and broker not in holders:
                raise _broken(
                    f"{key}: {broker} is in sync without all that is committed", absent[broker], high_watermark
                )
        if len(holders) < required(partition.min_insync_replicas, len(partition.leadership.replicas)):
            raise _broken(f"{key}: {leader} commits {high_watermark} with too few replicas", holders)
        disk = self._cluster.brokers[leader].host.disk
        self.committed[key].extend(leader, disk, partition.log, high_watermark, epoch)

    def _had(self, key: TopicPartition, broker_id: int) -> int | None:
        """Where the log of a replica that does not act now ended when it last did; None where it never did.

        Its last fetch may arrive after its death, and says no more than that, whatever became of its disk since.
        """
        replica = self._replicas.get(broker_id, {}).get(key)
        return None if replica is None else replica.partition.log.log_end_offset

    def _check_bytes(
        self, key: TopicPartition, broker_id: int, partition: Partition, state: LeaderAndIsr | None
    ) -> None:
        """Whether a replica has what was committed."""
        committed, end = self.committed[key], partition.log.log_end_offset
        limit = committed.end_offset
        if state is not None and broker_id in state.isr:
            if end < limit:
                raise _broken(f"{key}: {broker_id} is in sync without all that is committed", end, limit)
        else:
            limit = min(partition.high_watermark, limit)
        difference = committed.compare(broker_id, self._cluster.brokers[broker_id].host.disk, partition.log, limit)
        if difference is not None:
            raise _broken(f"{key} on {broker_id}: {difference}")

    def _check_clients(self) -> None:
        for key, history in self._histories.items():
            end = self.committed[key].end_offset
            told, given = history.ends(key.partition)
            if told > end:
                raise _broken(f"{key}: acknowledged, but not committed", told, end)
            if given > end:
                raise _broken(f"{key}: read, but not committed", given, end)


def _broken(text: str, *values: object) -> BrokenRule:
    return BrokenRule(": ".join([text, ", ".join(map(str, values))]) if values else text)
