"""Random joins, leaves, crashes, lost messages, metadata changes, failing writes and coordinator failovers.

After each step, no partition has two owners in the coordinator's state or among the members, epochs never decrease, and
the log matches the coordinator's state. After all faults stop, every partition is owned again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from consumer_scene import GROUP, ConsumerScene, Member

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer import fencing
from kreplica.groups.consumer.assignment import count, pairs, union
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.members import LEAVING, LEAVING_TEMPORARILY
from kreplica.groups.consumer.persistence import ReplayedGroups
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState, StateName
from kreplica.groups.consumer.transitions import HeartbeatResponse

STEPS = 200
SEEDS = range(8)
TOPICS = ("t", "u", "v")
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topic_names": ("t",)},
    {"topic_names": ("t", "u")},
    {"topic_names": ("u", "v")},
    {"topic_names": (), "regular_expression": "[tv]"},
    {"topic_names": ("u",), "server_assignor": "range"},
)
LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Client(Member):
    """A member that sends one request at a time and may lose messages.

    :ivar awaits_response: True while a heartbeat is unanswered.
    :ivar got_response: True if the last heartbeat was answered; otherwise the next one has all fields.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.awaits_response = False
        self.got_response = True
        self.epoch_of_group = 0


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.scene = ConsumerScene(session_timeout_ms=45_000)
        self.clients: list[Client] = []
        self.have_faults_stopped = False
        self._client_count = 0
        self._epoch = 0
        for topic in TOPICS:
            self.scene.cluster.set_partition_count(topic, self.random.randint(1, 6))

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        weights: dict[Callable[[], None], int] = {
            self.beat: 60,
            self.commit: 40,
            self.pass_time: 12,
            self.join: 6,
            self.resubscribe: 4,
            self.leave: 3,
            self.crash: 2,
            self.change_topic: 4,
            self.reject: 4,
            self.fail_over: 3,
            self.delete: 3,
        }
        self.random.choices(list(weights), list(weights.values()))[0]()
        self.check()

    def join(self) -> None:
        if len(self.clients) >= 6:
            return
        client = Client(f"m{self._client_count}")
        self._client_count += 1
        taken = {each.instance_id for each in self.clients}
        instance_id = self.random.choice(["i0", "i1", None, None])
        client.instance_id = instance_id if instance_id not in taken else None
        client.subscription = self.subscription()
        client.is_stubborn = self.random.random() < 0.2
        self.clients.append(client)
        self.send(client, client.join_heartbeat())

    def subscription(self) -> dict[str, Any]:
        return {"rebalance_timeout_ms": self.random.choice([10_000, 60_000]), **self.random.choice(SUBSCRIPTIONS)}

    def beat(self) -> None:
        for client in self.random.sample(self.clients, min(len(self.clients), 2)):
            self.send(client, self.heartbeat(client))

    def heartbeat(self, client: Client) -> Heartbeat:
        if not client.epoch:
            return client.join_heartbeat()
        return client.heartbeat(full=not client.got_response, quiet=client.got_response and self.random.random() < 0.3)

    def resubscribe(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.subscription = self.subscription()
            client.got_response = False
            self.beat()

    def leave(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            epoch = LEAVING_TEMPORARILY if client.instance_id and self.random.random() < 0.7 else LEAVING
            self.scene.send(client.leave_heartbeat(epoch), lambda answer: None)

    def crash(self) -> None:
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    def change_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        partitions = self.random.randint(0, 6)
        if partitions or topic in self.scene.cluster.counts:
            self.scene.cluster.set_partition_count(topic, partitions)

    def commit(self) -> None:
        self.scene.log.commit()

    def reject(self) -> None:
        """Fail a write that may still be committed later."""
        log = self.scene.log
        if not log.waiting:
            return
        records, committed, answer = log.waiting[0]
        if self.random.random() < 0.5:
            log.reject(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            log.waiting[0] = (records, committed, lambda code: None)
            answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def fail_over(self) -> None:
        """Fail over to another coordinator; a prefix of the pending appends survives but is not answered."""
        scene = self.scene
        waiting = list(scene.log.waiting)
        scene.log.waiting.clear()
        for records, _, _ in waiting[: self.random.randint(0, len(waiting))]:
            scene.log.records += records
        scene.unload()
        for _, _, answer in waiting:
            answer(ErrorCode.NOT_COORDINATOR)
        scene.load()

    def delete(self) -> None:
        """Delete the group if it is empty."""
        if self.scene.shard.group(GROUP) is not None:
            with suppress(KafkaError):
                self.scene.shard.delete(GROUP, lambda code: None)

    def pass_time(self) -> None:
        end = self.scene.clock.seconds() + self.random.choice([0.1, 2, 8, 20])
        while self.scene.clock.seconds() < end:
            self.scene.clock.advance(min(1.0, end - self.scene.clock.seconds()))
            if self.random.random() < 0.5:
                self.beat()

    def send(self, client: Client, heartbeat: Heartbeat) -> None:
        if client.awaits_response or (not self.have_faults_stopped and self.random.random() < 0.05):
            return
        client.awaits_response = True

        def on_response(answer: HeartbeatResponse | ErrorCode) -> None:
            client.awaits_response = False
            if client not in self.clients:
                return
            client.got_response = self.have_faults_stopped or self.random.random() > 0.1
            if not client.got_response:
                return  # the response is lost
            if isinstance(answer, HeartbeatResponse):
                assert answer.member_epoch >= client.epoch, f"{client.name}: epoch decreased"
                client.apply(answer)
            elif answer in LOST:
                client.drop_partitions()
            else:
                client.got_response = False

        self.scene.send(heartbeat, on_response)

    # --- invariants --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        replayed = ReplayedGroups()
        for key, value in self.scene.log.records:
            replayed.replay(key, value)
        states = replayed.states()
        self._epoch = self._epoch if states else 0  # the group was deleted or never created
        logged = states[0] if states else GroupState(GROUP)
        group = self.scene.shard.group(GROUP)
        if isinstance(group, ConsumerGroup):
            assert group.committed == logged, "the log differs from the state"
            self.check_state(group.state)
        self.check_state(logged)
        assert logged.epoch >= self._epoch, "the group's epoch decreased"
        self._epoch = logged.epoch
        self.check_clients(logged)

    def check_state(self, state: GroupState) -> None:
        owned = Counter(
            partition
            for member in state.members.values()
            for partition in pairs(union(member.progress.assigned, member.progress.pending_revocation))
        )
        assert set(owned.values()) <= {1}, "a partition has two owners"
        owners = {(topic_id, each): owner for topic_id, parts in state.owners.items() for each, owner in parts.items()}
        assert dict.fromkeys(owners, 1) == dict(owned), "the owners differ from the members' assignments"

    def check_clients(self, state: GroupState) -> None:
        """Check that no two members read the same partition."""
        members = [client for client in self.clients if client.member_id in state.members]
        reader_counts = Counter(partition for client in members for partition in pairs(client.owned))
        assert set(reader_counts.values()) <= {1}, "a partition has two readers"

    def stop_faults(self) -> None:
        """Stop all faults; check that every partition gets an owner and keeps it."""
        self.have_faults_stopped = True
        for client in self.clients:
            client.is_stubborn = False
        for _ in range(30):
            self.scene.log.commit()
            for client in self.clients:
                client.got_response = False
                self.send(client, self.heartbeat(client))
                self.scene.log.commit()
            self.scene.advance(5)
            self.check()
        if not self.clients:
            return
        state = self.scene.state
        assert state.name is StateName.STABLE
        assert sorted(state.members) == sorted(client.member_id for client in self.clients)
        assert all(client.owned == state.target[client.member_id] for client in self.clients)
        counts = self.scene.cluster.counts
        assert sum(count(client.owned) for client in self.clients) == sum(
            counts[topic] for topic in counts if self.scene.group.is_subscribed_to(topic)
        )


def run(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    storm.stop_faults()
    storm.scene.unload()
    assert storm.scene.clock.getDelayedCalls() == []


def run_all() -> None:
    for seed in SEEDS:
        run(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults(seed: int) -> None:
    """No partition ever has two owners, and in the end every partition has one."""
    run(seed)


@pytest.mark.parametrize("guard", ["is_free", "has_revoked"])
def test_storm_detects_missing_fencing_rules(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If either fencing rule is disabled, a partition gets two owners."""
    monkeypatch.setattr(fencing, guard, lambda *_: True)
    with pytest.raises(AssertionError, match=r"two owners|two readers|differ from the members"):
        run_all()
