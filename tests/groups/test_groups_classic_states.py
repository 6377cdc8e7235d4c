"""Every request in every state of a classic group, and all transitions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from classic_scene import GROUP, Actor, ClassicScene, Story, join_request, protocols

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import fencing
from kreplica.groups.classic.requests import Leave, Sync
from kreplica.groups.classic.states import State

STABLE = "> a joins version=0\n> b joins version=0\n> wait 0\n> a syncs a=0 b=1\n> b syncs\n> commit\n"
STATES = {
    "none": "",
    "empty": STABLE + "> a leaves\n> b leaves\n> commit\n",
    "preparing": STABLE + "> c joins version=0\n",
    "completing": "> a joins version=0\n> b joins version=0\n> wait 0\n",
    "stable": STABLE,
    "elsewhere": STABLE + "> unload\n",
    "loading": STABLE + "> unload\n",
}
"""Steps that bring a group into each state, with ``a`` as (former) leader and ``b`` as follower."""

WAITS = "waits"
OK = "NONE"
UNKNOWN = "UNKNOWN_MEMBER_ID"
STALE = "ILLEGAL_GENERATION"
AGAIN = "REBALANCE_IN_PROGRESS"
OTHER = "INCONSISTENT_GROUP_PROTOCOL"
FENCED = "FENCED_INSTANCE_ID"
FULL = "NON_EMPTY_GROUP"
MISSING = "GROUP_ID_NOT_FOUND"
MOVED = "NOT_COORDINATOR"
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
NO_ID = "INVALID_GROUP_ID"
SESSION = "INVALID_SESSION_TIMEOUT"

COLUMNS = ("none", "empty", "preparing", "completing", "stable", "elsewhere", "loading")
TABLE = {
    "join as a new client":     (WAITS, WAITS, WAITS, WAITS, WAITS, MOVED, LOADING),
    "join as a follower":       (UNKNOWN, UNKNOWN, WAITS, OK, OK, MOVED, LOADING),
    "join as the leader":       (UNKNOWN, UNKNOWN, WAITS, OK, WAITS, MOVED, LOADING),
    "join with other metadata": (UNKNOWN, UNKNOWN, WAITS, WAITS, WAITS, MOVED, LOADING),
    "join as unknown ID":       (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "join as unknown instance": (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "join of another type":     (WAITS, WAITS, OTHER, OTHER, OTHER, MOVED, LOADING),
    "join by other protocols":  (WAITS, WAITS, OTHER, OTHER, OTHER, MOVED, LOADING),
    "join by no protocols":     (OTHER, OTHER, OTHER, OTHER, OTHER, MOVED, LOADING),
    "join for a short session": (SESSION, SESSION, SESSION, SESSION, SESSION, MOVED, LOADING),
    "join for a long session":  (SESSION, SESSION, SESSION, SESSION, SESSION, MOVED, LOADING),
    "join no group":            (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "sync as a follower":       (UNKNOWN, UNKNOWN, AGAIN, WAITS, OK, MOVED, AGAIN),
    "sync as the leader":       (UNKNOWN, UNKNOWN, AGAIN, WAITS, OK, MOVED, AGAIN),
    "sync an old generation":   (UNKNOWN, UNKNOWN, STALE, STALE, STALE, MOVED, AGAIN),
    "sync as unknown ID":       (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, AGAIN),
    "sync of another type":     (UNKNOWN, UNKNOWN, OTHER, OTHER, OTHER, MOVED, AGAIN),
    "sync by other protocols":  (UNKNOWN, UNKNOWN, OTHER, OTHER, OTHER, MOVED, AGAIN),
    "sync by the same":         (UNKNOWN, UNKNOWN, AGAIN, WAITS, OK, MOVED, AGAIN),
    "sync no group":            (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "beat":                     (UNKNOWN, UNKNOWN, AGAIN, OK, OK, MOVED, OK),
    "beat an old generation":   (UNKNOWN, UNKNOWN, STALE, STALE, STALE, MOVED, OK),
    "beat as unknown ID":       (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, OK),
    "beat no group":            (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "leave":                    (UNKNOWN, UNKNOWN, OK, OK, OK, MOVED, LOADING),
    "leave as unknown ID":      (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "leave as no id":           (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "leave no group":           (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "commit as a member":       (MISSING, UNKNOWN, OK, AGAIN, OK, MOVED, LOADING),
    "commit an old generation": (MISSING, UNKNOWN, STALE, STALE, STALE, MOVED, LOADING),
    "commit as no member":      (MISSING, OK, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "commit in a transaction as a member": (MISSING, UNKNOWN, OK, OK, OK, MOVED, LOADING),
    "commit in a transaction as no member": (MISSING, OK, OK, OK, OK, MOVED, LOADING),
    "delete":                   (MISSING, WAITS, FULL, FULL, FULL, MOVED, LOADING),
    "delete offsets":           (MISSING, OK, OK, OK, OK, MOVED, LOADING),
}  # fmt: skip
"""Immediate response to each request in each state; ``WAITS`` if it is sent later."""


class Asker:
    """Sends one request, as ``a`` or ``b`` where it says so."""

    def __init__(self, state: str) -> None:
        self.scene = ClassicScene(initial_rebalance_delay_ms=0)
        story = Story(self.scene)
        story.run(STATES[state])
        if state == "loading":
            self.scene.shards.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        unknown = Actor("unknown", member_id="unknown", generation=1)
        self.leader = story.actors.get("a", unknown)
        self.follower = story.actors.get("b", unknown)
        self.answer = WAITS

    def ask(self, what: str) -> str:
        verb, _, how = what.partition(" ")
        getattr(self, f"_{verb}")(how)
        return self.answer

    def _answered(self, code: ErrorCode) -> None:
        self.answer = code.name

    def _join(self, how: str) -> None:
        changes = {
            "as a new client": {"member_id": ""},
            "as a follower": {},
            "as the leader": {"member_id": self.leader.member_id, "client_id": "a"},
            "with other metadata": {"protocols": protocols("range", topics=["other"])},
            "as unknown ID": {"member_id": "unknown"},
            "as unknown instance": {"member_id": "unknown", "instance_id": "unknown"},
            "of another type": {"member_id": "", "protocol_type": "connect"},
            "by other protocols": {"member_id": "", "protocols": protocols("sticky")},
            "by no protocols": {"member_id": "", "protocols": ()},
            "for a short session": {"session_timeout_ms": 5999},
            "for a long session": {"session_timeout_ms": 1_800_001},
            "no group": {},
        }[how]
        request = join_request(**{"member_id": self.follower.member_id, "client_id": "b"} | changes)
        group_id = "" if how == "no group" else GROUP
        self.scene.coordinator.join(group_id, request, lambda joined: self._answered(joined.error))

    def _sync(self, how: str) -> None:
        leader, follower = self.leader.member_id, self.follower.member_id
        request = {
            "as a follower": Sync(1, follower),
            "as the leader": Sync(1, leader, assignments=[(leader, b"0")]),
            "an old generation": Sync(0, follower),
            "as unknown ID": Sync(1, "unknown"),
            "of another type": Sync(1, follower, None, "connect", "range"),
            "by other protocols": Sync(1, follower, None, "consumer", "sticky"),
            "by the same": Sync(1, follower, None, "consumer", "range"),
            "no group": Sync(1, follower),
        }[how]
        group_id = "" if how == "no group" else GROUP
        self.scene.coordinator.sync(group_id, request, lambda synced: self._answered(synced.error))

    def _beat(self, how: str) -> None:
        member_id = "unknown" if how == "as unknown ID" else self.follower.member_id
        generation = 0 if how == "an old generation" else 1
        group_id = "" if how == "no group" else GROUP
        self._answered(self.scene.coordinator.heartbeat(group_id, member_id, None, generation))

    def _leave(self, how: str) -> None:
        member_id = {"as unknown ID": "unknown", "as no id": ""}.get(how, self.follower.member_id)
        self._check(lambda: self._left("" if how == "no group" else GROUP, member_id))

    def _left(self, group_id: str, member_id: str) -> None:
        (code,) = self.scene.coordinator.leave(group_id, [Leave(member_id)])
        raise KafkaError(code)

    def _commit(self, how: str) -> None:
        is_member = not how.endswith("as no member")
        generation = (0 if how == "an old generation" else 1) if is_member else -1
        member_id = self.follower.member_id if is_member else ""
        transactional = how.startswith("in a transaction")
        self._check(lambda: self._group().check_commit(
            member_id, None, generation, transactional=transactional, version=8
        ))  # fmt: skip

    def _delete(self, how: str) -> None:
        if how == "offsets":
            self._check(lambda: self._group().check_offset_delete())
        else:
            self.scene.coordinator.delete(GROUP, self._answered)

    def _group(self):  # type: ignore[no-untyped-def]
        group = self.scene.coordinator.shards.shard_of(GROUP).group(GROUP)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
            self._answered(ErrorCode.NONE)
        except KafkaError as error:
            self._answered(error.code)


@pytest.mark.parametrize("request_name", TABLE)
def test_every_request_in_every_state(request_name: str) -> None:
    """Each request has Kafka's response in each state."""
    answers = tuple(Asker(state).ask(request_name) for state in COLUMNS)
    assert dict(zip(COLUMNS, answers, strict=True)) == dict(zip(COLUMNS, TABLE[request_name], strict=True))


VALID = {
    "Empty": {"PreparingRebalance", "Dead"},
    "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
    "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
    "Stable": {"PreparingRebalance", "Dead"},
    "Dead": {"Dead"},
}


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_state_transitions(before: State, after: State) -> None:
    """Kafka has the same transitions; others raise an error."""
    scene = ClassicScene()
    group = scene.shard.classic(GROUP)
    group.state = before
    if after.value in VALID[before.value]:
        group.transition(after)
        assert group.state is after
    else:
        with pytest.raises(RuntimeError, match=after.value):
            group.transition(after)
        assert group.state is before


def test_fencing_predicates() -> None:
    """Each one has the documented result."""
    assert fencing.is_current_generation(2, 2)
    assert not fencing.is_current_generation(1, 2)
    assert not fencing.is_current_generation(3, 2)
    assert fencing.holds_instance("a", "a")
    assert not fencing.holds_instance("a", "b")
    assert fencing.is_same_rebalance(True, 2, 2)
    assert not fencing.is_same_rebalance(True, 1, 2)
    assert not fencing.is_same_rebalance(False, 2, 2)
