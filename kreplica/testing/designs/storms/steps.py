"""The steps of a storm: for each, a condition and an effect.

One step is atomic: a fetch is a request, its handling by the leader, and the handling of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from kreplica.testing.designs.storms.checks import AcknowledgedRecords
from kreplica.testing.designs.storms.replica import ReplicaRole, Request, StormReplica, StormZooKeeper
from kreplica.testing.designs.storms.rules import Rules, StormDesign


class Step(NamedTuple):
    """One step.

    :param broker: the broker that takes the step or is affected by it.
    :param other: the other broker, if there is one.
    """

    name: str
    broker: int
    other: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.broker}" + (f" {self.other}" if self.other else "")


WEIGHTS = {
    "write": 4.0, "fetch": 8.0, "commit": 4.0, "join": 2.0, "drop": 0.7, "crash": 0.5, "restart": 2.0, "expire": 0.5,
    "learn": 0.7, "notice": 3.0, "race": 3.0, "obey": 3.0, "open": 3.0, "cut": 0.3, "heal": 1.0,
}  # fmt: skip
"""Relative frequencies."""


class StormState:
    """A partition with its replicas; the first leads at the start, and all are in sync."""

    def __init__(self, replica_count: int, design: StormDesign, rules: Rules) -> None:
        ids = range(1, replica_count + 1)
        self.zookeeper = StormZooKeeper(frozenset(ids), queues={broker_id: [] for broker_id in ids})
        self.replicas = {broker_id: StormReplica(broker_id) for broker_id in ids}
        self.records = AcknowledgedRecords()
        self._design = design
        self._rules = rules
        self._cut_links: set[tuple[int, int]] = set()
        self._record_count = 0
        first = self.replicas[1]
        self.zookeeper.leader, self.zookeeper.epoch = 1, 1
        first.role, first.epoch, first.isr = ReplicaRole.LEADER, 1, self.zookeeper.isr
        for replica in self.replicas.values():
            if replica is not first:
                replica.role, replica.leader, replica.epoch = ReplicaRole.FOLLOWER, 1, 1
        self.records.opened(first)

    # --- steps -------------------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Return all steps whose condition holds, in a fixed order."""
        return [step for step in self._candidates() if self._condition(step)]

    def _candidates(self) -> Iterator[Step]:
        for name in WEIGHTS:
            if name in ("cut", "heal"):
                yield from (Step(name, *pair) for pair in combinations(self.replicas, 2))
            elif name in ("join", "drop"):
                yield from (Step(name, a, b) for a in self.replicas for b in self.replicas if a != b)
            else:
                yield from (Step(name, broker) for broker in self.replicas)

    def _condition(self, step: Step) -> bool:
        condition: Callable[..., bool] = getattr(self, f"_can_{step.name}")
        replica = self.replicas[step.broker]
        return condition(replica, self.replicas[step.other]) if step.other else condition(replica)

    def run(self, step: Step) -> str | None:
        """Run a step and describe its effect; None if its condition does not hold.

        :raise Violation: a checker found a violation.
        """
        if not self._condition(step):
            return None
        effect: Callable[..., str] = getattr(self, f"_{step.name}")
        replica = self.replicas[step.broker]
        return effect(replica, self.replicas[step.other]) if step.other else effect(replica)

    # --- records -----------------------------------------------------------------------------------------------------

    def _can_write(self, leader: StormReplica) -> bool:
        return leader.leads()

    def _write(self, leader: StormReplica) -> str:
        self._record_count += 1
        leader.log.append((leader.epoch, self._record_count))
        return f"broker {leader.broker_id} appends record {self._record_count} at offset {leader.end - 1}"

    def _can_fetch(self, follower: StormReplica) -> bool:
        if not follower.alive or follower.role is not ReplicaRole.FOLLOWER or follower.leader is None:
            return False
        leader = self.replicas[follower.leader]
        serves = leader.alive and leader.role in (ReplicaRole.LEADER, ReplicaRole.ELECTED)
        return serves and not self._is_cut(leader, follower)

    def _fetch(self, follower: StormReplica) -> str:
        assert follower.leader is not None
        leader = self.replicas[follower.leader]
        before = follower.end
        if not self._rules.truncate_by_epoch:
            del follower.log[leader.end :]
        else:
            del follower.log[_common_prefix(follower, leader) :]
        truncated = before - follower.end
        leader.ends[follower.broker_id] = start = follower.end
        follower.log += leader.log[start:]
        follower.high_watermark = min(leader.high_watermark, follower.end)
        cut = f"truncates {truncated} records, " if truncated else ""
        return (
            f"broker {follower.broker_id} {cut}fetches from broker {leader.broker_id} at offset {start}: "
            f"{follower.end - start} records, high watermark {follower.high_watermark}"
        )

    def _new_high_watermark(self, leader: StormReplica) -> int:
        followers = leader.isr - {leader.broker_id}
        return min([leader.end, *(leader.ends.get(follower, 0) for follower in followers)])

    def _can_commit(self, leader: StormReplica) -> bool:
        return leader.leads() and self._new_high_watermark(leader) > leader.high_watermark

    def _commit(self, leader: StormReplica) -> str:
        start, leader.high_watermark = leader.high_watermark, self._new_high_watermark(leader)
        self.records.acknowledged(leader, start)
        return (
            f"broker {leader.broker_id} raises its high watermark to {leader.high_watermark} and acknowledges "
            f"offsets {start} to {leader.high_watermark - 1}"
        )

    # --- in-sync replicas --------------------------------------------------------------------------------------------

    def _can_join(self, leader: StormReplica, follower: StormReplica) -> bool:
        end = leader.ends.get(follower.broker_id, -1)
        return leader.leads() and follower.broker_id not in leader.isr and end >= leader.high_watermark

    def _join(self, leader: StormReplica, follower: StormReplica) -> str:
        return self._write_isr(leader, leader.isr | {follower.broker_id})

    def _can_drop(self, leader: StormReplica, follower: StormReplica) -> bool:
        end = leader.ends.get(follower.broker_id, 0)
        return leader.leads() and follower.broker_id in leader.isr and end < leader.end

    def _drop(self, leader: StormReplica, follower: StormReplica) -> str:
        return self._write_isr(leader, leader.isr - {follower.broker_id})

    def _write_isr(self, leader: StormReplica, isr: frozenset[int]) -> str:
        """Write the ISR; a client whose session has expired reconnects for the write without the broker's knowledge."""
        zookeeper = self.zookeeper
        if self._rules.conditional_writes and leader.isr_version != zookeeper.isr_version:
            leader.role, leader.notified = ReplicaRole.IDLE, True
            return f"broker {leader.broker_id} cannot write the ISR, which has changed, and stops leading"
        zookeeper.isr = leader.isr = isr
        zookeeper.isr_version += 1
        leader.isr_version = zookeeper.isr_version
        return f"broker {leader.broker_id} writes the ISR {_ids(isr)}"

    # --- failures ----------------------------------------------------------------------------------------------------

    def _can_crash(self, replica: StormReplica) -> bool:
        return replica.alive

    def _crash(self, replica: StormReplica) -> str:
        replica.alive, replica.expired, replica.notified = False, False, False
        replica.role, replica.leader = ReplicaRole.IDLE, None
        self._end_session(replica)
        return f"broker {replica.broker_id} crashes; it keeps its log, and its session ends"

    def _can_restart(self, replica: StormReplica) -> bool:
        return not replica.alive

    def _restart(self, replica: StormReplica) -> str:
        replica.alive = replica.notified = True
        return f"broker {replica.broker_id} starts again"

    def _can_expire(self, replica: StormReplica) -> bool:
        return replica.alive and not replica.expired

    def _expire(self, replica: StormReplica) -> str:
        replica.expired = True
        self._end_session(replica)
        return f"the ZooKeeper session of broker {replica.broker_id} expires; the broker does not notice"

    def _end_session(self, replica: StormReplica) -> None:
        if self.zookeeper.leader == replica.broker_id:
            self.zookeeper.leader = None
            self._notify(replica)

    def _notify(self, changed_by: StormReplica) -> None:
        for replica in self.replicas.values():
            if replica is not changed_by and replica.alive:
                replica.notified = True

    def _can_learn(self, replica: StormReplica) -> bool:
        return replica.alive and replica.expired

    def _learn(self, replica: StormReplica) -> str:
        replica.expired, replica.notified = False, True
        replica.role, replica.leader = ReplicaRole.IDLE, None
        return f"broker {replica.broker_id} notices that its session has expired, and opens another"

    def _can_cut(self, a: StormReplica, b: StormReplica) -> bool:
        return not self._is_cut(a, b)

    def _cut(self, a: StormReplica, b: StormReplica) -> str:
        self._cut_links.add((a.broker_id, b.broker_id))
        return f"the network between brokers {a.broker_id} and {b.broker_id} is cut"

    def _can_heal(self, a: StormReplica, b: StormReplica) -> bool:
        return self._is_cut(a, b)

    def _heal(self, a: StormReplica, b: StormReplica) -> str:
        self._cut_links.discard((a.broker_id, b.broker_id))
        return f"the network between brokers {a.broker_id} and {b.broker_id} works again"

    def _is_cut(self, a: StormReplica, b: StormReplica) -> bool:
        return (min(a.broker_id, b.broker_id), max(a.broker_id, b.broker_id)) in self._cut_links

    # --- election ----------------------------------------------------------------------------------------------------

    def _can_notice(self, replica: StormReplica) -> bool:
        return replica.alive and replica.notified and not replica.expired

    def _notice(self, replica: StormReplica) -> str:
        replica.notified = False
        leader, broker_id = self.zookeeper.leader, replica.broker_id
        if leader == broker_id:
            return f"broker {broker_id} sees that it is the leader"
        if leader is not None and not self._design.queued:
            return self._follow(replica, leader, self.zookeeper.epoch)
        if leader is not None:
            if replica.role is not ReplicaRole.FOLLOWER:
                replica.role = ReplicaRole.IDLE
            return f"broker {broker_id} sees that broker {leader} is the leader, and waits for its request"
        if broker_id not in self.zookeeper.isr:
            return f"broker {broker_id} sees no leader, and is not in the ISR {_ids(self.zookeeper.isr)}"
        replica.role, replica.leader = ReplicaRole.CANDIDATE, None
        replica.isr_version = self.zookeeper.isr_version
        return f"broker {broker_id} sees no leader, reads the ISR {_ids(self.zookeeper.isr)}, and becomes a candidate"

    def _follow(self, replica: StormReplica, leader: int, epoch: int) -> str:
        replica.role, replica.leader, replica.epoch = ReplicaRole.FOLLOWER, leader, epoch
        text = f"broker {replica.broker_id} follows broker {leader}"
        if self._rules.truncate_by_epoch:
            return text
        truncated = replica.end - replica.high_watermark
        del replica.log[replica.high_watermark :]
        removed = "1 record" if truncated == 1 else f"{truncated} records"
        return f"{text} and truncates its log to its high watermark {replica.high_watermark}: {removed} removed"

    def _can_race(self, replica: StormReplica) -> bool:
        return replica.alive and replica.role is ReplicaRole.CANDIDATE and not replica.expired

    def _race(self, replica: StormReplica) -> str:
        zookeeper, broker_id = self.zookeeper, replica.broker_id
        if zookeeper.leader is not None:
            replica.role = ReplicaRole.IDLE
            return f"broker {broker_id} loses the race against broker {zookeeper.leader}"
        if self._rules.conditional_writes and replica.isr_version != zookeeper.isr_version:
            replica.role, replica.notified = ReplicaRole.IDLE, True
            return f"broker {broker_id} cannot create the leader znode, because the ISR has changed"
        if self._rules.conditional_writes:
            zookeeper.isr_version += 1
            replica.isr_version = zookeeper.isr_version
        zookeeper.epoch += 1
        zookeeper.leader = broker_id
        replica.role, replica.epoch, replica.ends = ReplicaRole.ELECTED, zookeeper.epoch, {}
        self._notify(replica)
        if self._design.queued:
            for other in self.replicas:
                if other != broker_id:
                    zookeeper.queues[other].append(Request(broker_id, zookeeper.epoch))
        return f"broker {broker_id} creates the leader znode, epoch {zookeeper.epoch}"

    def _can_obey(self, replica: StormReplica) -> bool:
        return replica.alive and not replica.expired and bool(self.zookeeper.queues[replica.broker_id])

    def _obey(self, replica: StormReplica) -> str:
        request = self.zookeeper.queues[replica.broker_id].pop(0)
        if request.epoch <= replica.epoch:
            return f"broker {replica.broker_id} ignores a request of epoch {request.epoch}"
        return self._follow(replica, request.leader, request.epoch)

    def _can_open(self, replica: StormReplica) -> bool:
        if not replica.alive or replica.role is not ReplicaRole.ELECTED:
            return False
        if not self._rules.wait_for_in_sync:
            return True
        in_sync = [self.replicas[broker_id] for broker_id in self.zookeeper.isr if broker_id != replica.broker_id]
        live = [follower for follower in in_sync if follower.alive and not follower.expired]
        return all(replica.ends.get(follower.broker_id) == replica.end for follower in live)

    def _open(self, replica: StormReplica) -> str:
        in_sync = {broker_id for broker_id, end in replica.ends.items() if end == replica.end}
        text = self._write_isr(replica, frozenset({replica.broker_id, *in_sync}))
        if replica.role is ReplicaRole.ELECTED:
            replica.role = ReplicaRole.LEADER
            start, replica.high_watermark = min(replica.high_watermark, replica.end), replica.end
            self.records.opened(replica)
            self.records.acknowledged(replica, start)
            text += f" and accepts writes, high watermark {replica.high_watermark}"
        return text


def _common_prefix(a: StormReplica, b: StormReplica) -> int:
    for offset, (mine, other) in enumerate(zip(a.log, b.log, strict=False)):
        if mine != other:
            return offset
    return min(a.end, b.end)


def _ids(ids: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(ids))) + "}"
