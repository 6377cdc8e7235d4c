"""Random sequences of requests, log results and timeouts: invariants hold, and every request is answered."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from classic_scene import GROUP, Actor, ClassicScene, join_request, protocols

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.requests import JoinResponse, Leave, Sync, SyncResponse
from kreplica.groups.classic.states import State

SEEDS = [int(seed) for seed in os.environ.get("KREPLICA_SEEDS", "").split(",") if seed] or list(range(60))
STEPS = 120
CLIENTS = 6
REJECTIONS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.MESSAGE_TOO_LARGE)


class RandomRun:
    """Six clients of one group, half of them static, which may lose their member IDs as in a restart."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scene = ClassicScene(
            initial_rebalance_delay_ms=self.random.choice([0, 3000]), size_max=self.random.choice([3, 100])
        )
        self.actors = [Actor(f"c{index}") for index in range(CLIENTS)]
        for actor in self.actors[::2]:
            actor.instance_id = f"instance {actor.name}"
        self.pending_count = 0
        self.join_responses: dict[str, JoinResponse] = {}
        self.assignment_owners: dict[tuple[int, bytes], str] = {}
        self.next_steps = {actor.name: self._join for actor in self.actors}

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        actor = self.random.choice(self.actors)
        kind = self.random.random()
        if kind < 0.55:
            step = self.next_steps[actor.name]  # the step that the protocol requires
        elif kind < 0.85:
            step = self.random.choices((self._wait, self._commit, self._reject, self._fail_over), (6, 12, 1, 1))[0]
        else:
            step = self.random.choices(
                (self._join, self._sync, self._beat, self._leave, self._restart, self._commit_offset),
                (6, 6, 4, 2, 1, 2),
            )[0]
        step(actor)

    def _join(self, actor: Actor) -> None:
        names = self.random.choice([("range",), ("range", "sticky"), ("sticky", "range")])
        request = join_request(
            actor.member_id,
            client_id=actor.name,
            instance_id=actor.instance_id,
            protocols=protocols(*names),
            requires_known_member=self.random.random() < 0.5,
            may_skip_assignment=self.random.random() < 0.5,
            rebalance_timeout_ms=self.random.choice([8000, 30_000]),
        )
        self.pending_count += 1
        self.next_steps[actor.name] = self._wait

        def joined(answer: JoinResponse) -> None:
            self.pending_count -= 1
            self.next_steps[actor.name] = self._sync if answer.error is ErrorCode.NONE else self._join
            if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                actor.member_id = answer.member_id
            elif answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
                actor.member_id = ""
            if answer.error is ErrorCode.NONE:
                actor.generation = answer.generation
                self.join_responses[actor.name] = answer

        self.scene.coordinator.join(GROUP, request, joined)

    def _sync(self, actor: Actor) -> None:
        joined = self.join_responses.get(actor.name)
        members = joined.members if joined is not None and joined.generation == actor.generation else ()
        assignments = [(member.member_id, b"part %d" % index) for index, member in enumerate(members)]
        request = Sync(actor.generation, actor.member_id, actor.instance_id, assignments=assignments)
        member_id, generation = actor.member_id, actor.generation
        self.pending_count += 1
        self.next_steps[actor.name] = self._wait

        def synced(answer: SyncResponse) -> None:
            self.pending_count -= 1
            self.next_steps[actor.name] = self._beat if answer.error is ErrorCode.NONE else self._join
            if answer.error is ErrorCode.NONE and answer.assignment:
                # The replacement of a static member gets the assignment of its predecessor.
                owner = self.assignment_owners.setdefault(
                    (generation, answer.assignment), actor.instance_id or member_id
                )
                assert owner == (actor.instance_id or member_id), f"two members have {answer.assignment!r}"

        self.scene.coordinator.sync(GROUP, request, synced)

    def _beat(self, actor: Actor) -> None:
        code = self.scene.coordinator.heartbeat(GROUP, actor.member_id, actor.instance_id, actor.generation)
        if code is not ErrorCode.NONE:
            self.next_steps[actor.name] = self._join

    def _leave(self, actor: Actor) -> None:
        self.scene.coordinator.leave(GROUP, [Leave(actor.member_id, actor.instance_id)])
        self.next_steps[actor.name] = self._join

    def _restart(self, actor: Actor) -> None:
        actor.member_id = ""
        self.next_steps[actor.name] = self._join

    def _commit_offset(self, actor: Actor) -> None:
        group = self.scene.shard.group(GROUP)
        if group is not None:
            try:
                group.check_commit(actor.member_id, actor.instance_id, actor.generation, transactional=False, version=8)
            except KafkaError:
                return

    def _wait(self, actor: Actor) -> None:
        self.scene.advance(self.random.choice([0.0, 0.2, 0.5, 4.0]))

    def _commit(self, actor: Actor) -> None:
        self.scene.log.commit()

    def _reject(self, actor: Actor) -> None:
        if self.scene.log.waiting:
            self.scene.log.reject(self.random.choice(REJECTIONS))

    def _fail_over(self, actor: Actor) -> None:
        self.scene.fail_over()

    # --- invariants --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.scene.shard.group(GROUP)
        if isinstance(group, ClassicGroup):
            check_group(group)

    def end(self) -> None:
        """Stop all clients and check that pending requests are answered and all members expire."""
        for _ in range(8):
            self.scene.log.commit()
            self.scene.advance(120)
        self.check()
        assert self.pending_count == 0
        group = self.scene.shard.group(GROUP)
        assert group is None or group.state_name == "Empty"
        self.scene.unload()
        assert self.scene.clock.getDelayedCalls() == []


def check_group(group: ClassicGroup) -> None:
    """Assert that the counters match the members and the state is consistent."""
    roster = group.roster
    members = list(roster.members.values())
    assert [member.member_id for member in members] == list(roster.members)
    assert roster.awaiting_join_count == sum(member.awaiting_join is not None for member in members)
    assert roster._ids == {member.instance_id: member.member_id for member in members if member.instance_id is not None}
    assert roster._supporter_counts == Counter(name for member in members for name in dict(member.protocols))
    assert (roster.leader is None) == (not members)
    assert roster.leader is None or roster.leader in roster.members
    assert roster.unsynced.keys() <= roster.members.keys()
    assert not roster.pending.keys() & roster.members.keys()
    waiting_to_sync = [member for member in members if member.awaiting_sync is not None]
    if group.state is State.EMPTY:
        assert not members
    if group.state is not State.COMPLETING_REBALANCE:
        assert not waiting_to_sync
    if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
        assert members
        assert group.protocol is not None
        assert all(group.protocol in dict(member.protocols) for member in members)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_order_of_requests(seed: int) -> None:
    """In any order of requests, counters are correct, no partition has two owners, and every request is answered."""
    run = RandomRun(seed)
    for _ in range(STEPS):
        run.step()
        run.check()
    run.end()
