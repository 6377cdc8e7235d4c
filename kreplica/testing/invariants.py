"""What must hold after every event of a simulated cluster, whatever fails: looked up in the brokers' own objects.

The rules, as ``BrokenRule`` names them:

* one leader an epoch; the leader is in sync; the in-sync set is within the assignment
* epochs never go back: of the znode, of each replica in one process, of each broker's controller
* a leader's high watermark never goes back while it leads, and is no further than its log
* what is committed is on as many replicas as the topic asks for, and on every member of the true in-sync set (the
  znode's), whichever broker believes that it leads
* what was committed once stays: every later leader has it, and every replica agrees byte for byte below its high
  watermark, every in-sync one below all that was ever committed
* no client was told of, or given, a record that is not committed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kreplica.cluster import documents, znodes
from kreplica.cluster.eligible_leaders import required
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.testing.cluster_state import ACTING, acting, replicas_of, state_of, znode
from kreplica.testing.committed_log import CommittedLog
from kreplica.testing.histories import History
from kreplica.testing.scheduler import Process

if TYPE_CHECKING:
    from kreplica.testing.cluster import SimulatedCluster


class BrokenRule(AssertionError):
    """A rule that did not hold, and where."""


class _Tenure:
    """One replica in one process, as it was when last looked at."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.seen: Any = None
        self.leader_epoch = partition.leadership.leader_epoch
        self.led_epoch: int | None = None
        self.high_watermark = 0


class Invariants:
    """Checks the partitions of one topic after each event; it costs little where nothing has changed.

    :param history: what clients were told; None where nobody is.
    :ivar committed: of each partition, what was ever below a leader's high watermark.
    :ivar checks_count: how often something had changed and was checked.
    """

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, history: History | None = None) -> None:
        self.checks_count = 0
        self._cluster = cluster
        self._history = history
        self._keys = [TopicPartition(topic, partition) for partition in range(partitions)]
        self.committed = {key: CommittedLog() for key in self._keys}
        self._tenures: dict[tuple[TopicPartition, int], _Tenure] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._states: dict[TopicPartition, LeaderAndIsr] = {}
        self._controllers: dict[int, tuple[object, int]] = {}
        self._controller_epoch = 0
        self._coordinator: object = None
        self._broker_ids = {machine.host.name: number for number, machine in cluster.brokers.items()}

    def watch(self) -> None:
        """Check after every event from now on: that whose process it happened to, for nothing else can have changed."""
        self._cluster.simulation.scheduler.after_event = self._after

    def _after(self, process: Process) -> None:
        name = process.name.partition("#")[0]
        broker_id = self._broker_ids.get(name)
        if broker_id is not None:
            self._check_broker(broker_id)
        elif name == "coordinator":
            self._check_coordinator()
        elif name != "network":
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
        if not machine.running:
            return
        if machine.program is not self._coordinator:
            # What nobody was told of may be gone after a crash.
            self._coordinator = machine.program
            self._states.clear()
            self._controller_epoch = 0
        node = znode(self._cluster, znodes.CONTROLLER_EPOCH)
        if node is not None:
            epoch = documents.decode_controller_epoch(node.data or b"")
            _hold(epoch >= self._controller_epoch, "the controller epoch went back", epoch, self._controller_epoch)
            self._controller_epoch = epoch
        for key in self._keys:
            state = state_of(self._cluster, key)
            if state is not None and state is not self._states.get(key):
                self._check_state(key, state)
                self._check_replicas(key)

    def _check_broker(self, broker_id: int) -> None:
        machine = self._cluster.brokers[broker_id]
        if not machine.running:
            return
        program = machine.program
        fence, before = program.fence, self._controllers.get(broker_id)
        if before is not None and before[0] is fence:
            _hold(fence.controller_epoch >= before[1], "a broker obeys an older controller", broker_id)
        self._controllers[broker_id] = fence, fence.controller_epoch
        for key in self._keys:
            partition = program.partitions.get(key)
            if partition is not None and partition.role in ACTING and self._has_changed(key, broker_id, partition):
                self._check_replicas(key)

    def _has_changed(self, key: TopicPartition, broker_id: int, partition: Partition) -> bool:
        now = (partition.leadership, partition.role, partition.high_watermark, partition.log.log_end_offset)
        tenure = self._tenures.get((key, broker_id))
        if tenure is None or tenure.partition is not partition:
            tenure = self._tenures[key, broker_id] = _Tenure(partition)
        changed = bool(tenure.seen != now)
        tenure.seen = now
        return changed

    # --- partitions --------------------------------------------------------------------------------------------------

    def _check_replicas(self, key: TopicPartition) -> None:
        self.checks_count += 1
        replicas, state = dict(acting(self._cluster, key)), state_of(self._cluster, key)
        for broker_id, partition in replicas.items():
            self._has_changed(key, broker_id, partition)
            self._check_tenure(key, broker_id, partition)
        for broker_id, partition in replicas.items():
            if partition.is_leader:
                self._check_commits(key, broker_id, partition, replicas, state)
        for broker_id, partition in replicas.items():
            self._check_bytes(key, broker_id, partition, state)

    def _check_state(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        before = self._states.get(key)
        if before is not None:
            _hold(state.leader_epoch >= before.leader_epoch, f"{key}: the leader epoch went back", before, state)
            if state.leader_epoch == before.leader_epoch and NO_LEADER not in (state.leader, before.leader):
                _hold(state.leader == before.leader, f"{key}: two leaders in one epoch", before, state)
        assigned = replicas_of(self._cluster, key)
        if assigned:
            _hold(set(state.isr) <= set(assigned), f"{key}: in sync, but not assigned", state, assigned)
            _hold(set(state.eligible_leader_replicas) <= set(assigned), f"{key}: eligible, but not assigned", state)
        _hold(state.leader in (NO_LEADER, *state.isr), f"{key}: the leader is not in sync", state)
        self._states[key] = state

    def _check_tenure(self, key: TopicPartition, broker_id: int, partition: Partition) -> None:
        """What holds for one replica by itself."""
        tenure = self._tenures[key, broker_id]
        epoch = partition.leadership.leader_epoch
        _hold(epoch >= tenure.leader_epoch, f"{key} on {broker_id}: the leader epoch went back", epoch)
        tenure.leader_epoch = epoch
        high_watermark, end = partition.high_watermark, partition.log.log_end_offset
        _hold(high_watermark <= end, f"{key} on {broker_id}: committed beyond its log", high_watermark, end)
        if not partition.is_leader:
            tenure.led_epoch = None
            return
        leader = self._leaders.setdefault((key, epoch), broker_id)
        _hold(leader == broker_id, f"{key}: two leaders act in epoch {epoch}", leader, broker_id)
        if tenure.led_epoch == epoch:
            _hold(high_watermark >= tenure.high_watermark, f"{key} on {broker_id}: the high watermark went back")
        else:
            committed = self.committed[key].end_before(epoch)
            _hold(end >= committed, f"{key}: {broker_id} leads in epoch {epoch} without all commits", end, committed)
        tenure.led_epoch, tenure.high_watermark = epoch, high_watermark

    def _check_commits(
        self,
        key: TopicPartition,
        leader: int,
        partition: Partition,
        replicas: dict[int, Partition],
        state: LeaderAndIsr | None,
    ) -> None:
        """What holds of a high watermark when it moves."""
        high_watermark, committed = partition.high_watermark, self.committed[key]
        if high_watermark <= committed.end_offset:
            return
        holders = {broker for broker, other in replicas.items() if other.log.log_end_offset >= high_watermark}
        if state is not None:
            may_lead = (*state.isr, *state.eligible_leader_replicas)
            holders.update(broker for broker in may_lead if broker not in replicas)
        needed = required(partition.min_insync_replicas, len(partition.leadership.replicas))
        _hold(len(holders) >= needed, f"{key}: {leader} commits {high_watermark} with too few replicas", holders)
        epoch = partition.leadership.leader_epoch
        committed.extend(self._cluster.brokers[leader].host.disk, partition.log, high_watermark, epoch)

    def _check_bytes(
        self, key: TopicPartition, broker_id: int, partition: Partition, state: LeaderAndIsr | None
    ) -> None:
        """Whether a replica has what was committed."""
        committed, end = self.committed[key], partition.log.log_end_offset
        if state is not None and broker_id in state.isr:
            _hold(
                end >= committed.end_offset,
                f"{key}: {broker_id} is in sync without all that is committed",
                end,
                committed.end_offset,
            )
            limit = committed.end_offset
        else:
            limit = min(partition.high_watermark, committed.end_offset)
        difference = committed.compare(broker_id, self._cluster.brokers[broker_id].host.disk, partition.log, limit)
        _hold(difference is None, f"{key} on {broker_id}: {difference}")

    def _check_clients(self) -> None:
        if self._history is None:
            return
        for key in self._keys:
            end = self.committed[key].end_offset
            told, given = self._history.ends(key.partition)
            _hold(told <= end, f"{key}: acknowledged, but not committed", told, end)
            _hold(given <= end, f"{key}: read, but not committed", given, end)


def _hold(rule: bool, text: str, *values: object) -> None:
    if not rule:
        raise BrokenRule(": ".join([text, ", ".join(map(str, values))]) if values else text)
