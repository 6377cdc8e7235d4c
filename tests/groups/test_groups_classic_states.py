"""Responses of a classic group to every request in every state, and all state transitions."""

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
REJOIN = "REBALANCE_IN_PROGRESS"
PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
FENCED = "FENCED_INSTANCE_ID"
NON_EMPTY = "NON_EMPTY_GROUP"
MISSING = "GROUP_ID_NOT_FOUND"
MOVED = "NOT_COORDINATOR"
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
NO_ID = "INVALID_GROUP_ID"
SESSION = "INVALID_SESSION_TIMEOUT"

COLUMNS = ("none", "empty", "preparing", "completing", "stable", "elsewhere", "loading")
TABLE = {
    "join as a new client":         (WAITS, WAITS, WAITS, WAITS, WAITS, MOVED, LOADING),
    "join as a follower":           (UNKNOWN, UNKNOWN, WAITS, OK, OK, MOVED, LOADING),
    "join as the leader":           (UNKNOWN, UNKNOWN, WAITS, OK, WAITS, MOVED, LOADING),
    "join with other metadata":     (UNKNOWN, UNKNOWN, WAITS, WAITS, WAITS, MOVED, LOADING),
    "join as unknown ID":           (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "join as unknown instance":     (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "join of another type":         (WAITS, WAITS, PROTOCOL, PROTOCOL, PROTOCOL, MOVED, LOADING),
    "join with other protocols":    (WAITS, WAITS, PROTOCOL, PROTOCOL, PROTOCOL, MOVED, LOADING),
    "join with no protocols":       (PROTOCOL, PROTOCOL, PROTOCOL, PROTOCOL, PROTOCOL, MOVED, LOADING),
    "join with a short session":    (SESSION, SESSION, SESSION, SESSION, SESSION, MOVED, LOADING),
    "join with a long session":     (SESSION, SESSION, SESSION, SESSION, SESSION, MOVED, LOADING),
    "join without a group ID":      (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "sync as a follower":           (UNKNOWN, UNKNOWN, REJOIN, WAITS, OK, MOVED, REJOIN),
    "sync as the leader":           (UNKNOWN, UNKNOWN, REJOIN, WAITS, OK, MOVED, REJOIN),
    "sync in an old generation":    (UNKNOWN, UNKNOWN, STALE, STALE, STALE, MOVED, REJOIN),
    "sync as unknown ID":           (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, REJOIN),
    "sync of another type":         (UNKNOWN, UNKNOWN, PROTOCOL, PROTOCOL, PROTOCOL, MOVED, REJOIN),
    "sync with other protocols":    (UNKNOWN, UNKNOWN, PROTOCOL, PROTOCOL, PROTOCOL, MOVED, REJOIN),
    "sync with the same protocol":  (UNKNOWN, UNKNOWN, REJOIN, WAITS, OK, MOVED, REJOIN),
    "sync without a group ID":      (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "beat":                         (UNKNOWN, UNKNOWN, REJOIN, OK, OK, MOVED, OK),
    "beat in an old generation":    (UNKNOWN, UNKNOWN, STALE, STALE, STALE, MOVED, OK),
    "beat as unknown ID":           (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, OK),
    "beat without a group ID":      (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "leave":                        (UNKNOWN, UNKNOWN, OK, OK, OK, MOVED, LOADING),
    "leave as unknown ID":          (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "leave without an ID":          (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "leave without a group ID":     (NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID, NO_ID),
    "commit as a member":           (MISSING, UNKNOWN, OK, REJOIN, OK, MOVED, LOADING),
    "commit in an old generation":  (MISSING, UNKNOWN, STALE, STALE, STALE, MOVED, LOADING),
    "commit as a non-member":       (MISSING, OK, UNKNOWN, UNKNOWN, UNKNOWN, MOVED, LOADING),
    "commit in a transaction as a member": (MISSING, UNKNOWN, OK, OK, OK, MOVED, LOADING),
    "commit in a transaction as a non-member": (MISSING, OK, OK, OK, OK, MOVED, LOADING),
    "delete":                       (MISSING, WAITS, NON_EMPTY, NON_EMPTY, NON_EMPTY, MOVED, LOADING),
    "delete offsets":               (MISSING, OK, OK, OK, OK, MOVED, LOADING),
}  # fmt: skip
"""Immediate response to each request in each state; ``WAITS`` if it is sent later."""


class Requester:
    """Sends one request to a group in the given state, as leader ``a``, follower ``b`` or another client."""

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

    def send(self, request: str) -> str:
        verb, _, how = request.partition(" ")
        getattr(self, f"_{verb}")(how)
        return self.answer

    def _record(self, code: ErrorCode) -> None:
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
            "with other protocols": {"member_id": "", "protocols": protocols("sticky")},
            "with no protocols": {"member_id": "", "protocols": ()},
            "with a short session": {"session_timeout_ms": 5999},
            "with a long session": {"session_timeout_ms": 1_800_001},
            "without a group ID": {},
        }[how]
        request = join_request(**{"member_id": self.follower.member_id, "client_id": "b"} | changes)
        group_id = "" if how == "without a group ID" else GROUP
        self.scene.coordinator.join(group_id, request, lambda joined: self._record(joined.error))

    def _sync(self, how: str) -> None:
        leader, follower = self.leader.member_id, self.follower.member_id
        request = {
            "as a follower": Sync(1, follower),
            "as the leader": Sync(1, leader, assignments=[(leader, b"0")]),
            "in an old generation": Sync(0, follower),
            "as unknown ID": Sync(1, "unknown"),
            "of another type": Sync(1, follower, None, "connect", "range"),
            "with other protocols": Sync(1, follower, None, "consumer", "sticky"),
            "with the same protocol": Sync(1, follower, None, "consumer", "range"),
            "without a group ID": Sync(1, follower),
        }[how]
        group_id = "" if how == "without a group ID" else GROUP
        self.scene.coordinator.sync(group_id, request, lambda synced: self._record(synced.error))

    def _beat(self, how: str) -> None:
        member_id = "unknown" if how == "as unknown ID" else self.follower.member_id
        generation = 0 if how == "in an old generation" else 1
        group_id = "" if how == "without a group ID" else GROUP
        self._record(self.scene.coordinator.heartbeat(group_id, member_id, None, generation))

    def _leave(self, how: str) -> None:
        member_id = {"as unknown ID": "unknown", "without an ID": ""}.get(how, self.follower.member_id)
        self._check(lambda: self._left("" if how == "without a group ID" else GROUP, member_id))

    def _left(self, group_id: str, member_id: str) -> None:
        (code,) = self.scene.coordinator.leave(group_id, [Leave(member_id)])
        raise KafkaError(code)

    def _commit(self, how: str) -> None:
        is_member = not how.endswith("as a non-member")
        generation = (0 if how == "in an old generation" else 1) if is_member else -1
        member_id = self.follower.member_id if is_member else ""
        transactional = how.startswith("in a transaction")
        self._check(lambda: self._group().check_commit(
            member_id, None, generation, transactional=transactional, version=8
        ))  # fmt: skip

    def _delete(self, how: str) -> None:
        if how == "offsets":
            self._check(lambda: self._group().check_offset_delete())
        else:
            self.scene.coordinator.delete(GROUP, self._record)

    def _group(self):  # type: ignore[no-untyped-def]
        group = self.scene.coordinator.shards.shard_of(GROUP).group(GROUP)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
            self._record(ErrorCode.NONE)
        except KafkaError as error:
            self._record(error.code)


@pytest.mark.parametrize("request_name", TABLE)
def test_every_request_in_every_state(request_name: str) -> None:
    """In each state, each request gets the same response as from Kafka."""
    answers = tuple(Requester(state).send(request_name) for state in COLUMNS)
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
    """The state transitions of Kafka are allowed; all others raise an error."""
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
    assert fencing.is_current_generation(2, 2)
    assert not fencing.is_current_generation(1, 2)
    assert not fencing.is_current_generation(3, 2)
    assert fencing.holds_instance("a", "a")
    assert not fencing.holds_instance("a", "b")
    assert fencing.is_same_rebalance(True, 2, 2)
    assert not fencing.is_same_rebalance(True, 1, 2)
    assert not fencing.is_same_rebalance(False, 2, 2)
