"""Members of classic groups: cooperative rebalances, static members, and final errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Owners, Reader, delay, new_brokers, settle, start_readers
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.group import GroupOptions
from kreplica.client.group.error_actions import ErrorAction, error_action
from kreplica.client_core.errors import BrokerRefused, ConnectionLost, MalformedResponse, UnsupportedVersion
from kreplica.client_core.offsets import CommittedOffset
from kreplica.errors import ErrorCode
from kreplica.testing.cluster.cluster import SimulatedCluster

EAGER, COOPERATIVE = KINDS["eager"], KINDS["cooperative"]


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers, and the topic t with six partitions."""
    simulated_cluster = new_brokers()
    yield simulated_cluster
    assert simulated_cluster.simulation.failures == []
    simulated_cluster.stop()


def test_cooperative_members_revoke_only_moving_partitions(brokers: SimulatedCluster) -> None:
    """Members keep the partitions that do not move, without interruption, while others join and leave."""
    one, two = start_readers(brokers, "one", "two", **COOPERATIVE)
    assert one.calls == [("assigned", ALL), ("revoked", [3, 4, 5])]
    one.calls.clear()
    two.calls.clear()
    three = Reader(brokers, "three", owners=one.owners, **COOPERATIVE)
    brokers.run_until(three.start())
    settle(brokers, one, two, three)
    revoked = [numbers for reader in (one, two) for method, numbers in reader.calls if method == "revoked"]
    assert [len(numbers) for numbers in revoked] == [1, 1]
    kept = [one.owned, two.owned]
    three.stop()
    settle(brokers, one, two)
    assert kept[0] <= one.owned
    assert kept[1] <= two.owned
    one.stop()
    two.stop()


def test_cooperative_member_commits_while_others_join(brokers: SimulatedCluster) -> None:
    """A member commits during a rebalance that waits for another member."""
    one, two = start_readers(brokers, "one", "two", **COOPERATIVE, rebalance_timeout_s=60.0)
    two.revocation_hook = delay(two, 20.0)
    one.membership.subscribe(["t", "other"])
    two.membership.subscribe(["other"])
    brokers.run(3.0)
    assert len(one.owned) == 3
    brokers.run_until(one.membership.commit({each: CommittedOffset(7) for each in one.owned}))
    brokers.run_until(lambda: one.partition_numbers == ALL)
    two.revocation_hook = None
    one.stop()
    two.stop()


def test_static_member_keeps_its_assignment(brokers: SimulatedCluster) -> None:
    """A static member that returns within its session timeout gets its partitions back without a rebalance."""
    one, two = [Reader(brokers, name, owners=Owners(), **EAGER, instance_id=name) for name in ("one", "two")]
    for reader in (one, two):
        brokers.run_until(reader.start())
    brokers.run_until(lambda: len(one.owned) == len(two.owned) == 3)
    calls, numbers, generation = list(two.calls), one.partition_numbers, two.membership.identity.generation
    one.stop()
    brokers.run(3.0)
    again = Reader(brokers, "one", owners=Owners(), **EAGER, instance_id="one")
    brokers.run_until(again.start())
    brokers.run(15.0)
    assert (again.partition_numbers, two.calls, two.membership.identity.generation) == (numbers, calls, generation)
    again.stop()
    brokers.run_until(lambda: two.partition_numbers == ALL)  # the static member's session has expired
    two.stop()


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_static_leader_returns(brokers: SimulatedCluster, kind: str) -> None:
    """A returning leader computes no assignment (KIP-814) until another member joins."""
    options = {**KINDS[kind], "instance_id": "one"}
    one = Reader(brokers, "one", owners=Owners(), **options)
    brokers.run_until(one.start())
    one.stop()
    again = Reader(brokers, "one", **options)
    brokers.run_until(again.start())
    assert again.partition_numbers == ALL
    two = Reader(brokers, "two", owners=again.owners, **KINDS[kind])
    brokers.run_until(two.start())
    settle(brokers, again, two)
    again.stop()
    two.stop()


def test_replaced_static_member_ends(brokers: SimulatedCluster) -> None:
    """A static member ends with an error when another member joins with its instance ID."""
    one = Reader(brokers, "one", **EAGER, instance_id="same")
    brokers.run_until(one.start())
    two = Reader(brokers, "two", **EAGER, instance_id="same")
    brokers.run_until(two.start())
    brokers.run_until(lambda: one.final_error is not None)
    assert one.final_error is one.membership.error
    assert isinstance(one.final_error, BrokerRefused)
    assert one.final_error.code is ErrorCode.FENCED_INSTANCE_ID
    assert one.calls[-1] == ("lost", ALL)
    assert two.partition_numbers == ALL
    one.stop()
    two.stop()


def test_member_without_a_common_assignor_is_refused(brokers: SimulatedCluster) -> None:
    """``start`` raises the broker's error, and ``on_ended`` is not called."""
    (one,) = start_readers(brokers, "one", **EAGER)
    two = Reader(brokers, "two", protocol="classic", assignors=("sticky",))
    with pytest.raises(BrokerRefused, match="INCONSISTENT_GROUP_PROTOCOL"):
        brokers.run_until(two.start())
    assert two.final_error is None
    two.stop()
    one.stop()


def test_membership_continues_after_a_listener_error(brokers: SimulatedCluster) -> None:
    (one,) = start_readers(brokers, "one", **EAGER)

    async def fail(partitions):
        one.owned = frozenset()
        raise RuntimeError("a user's mistake")

    one.revocation_hook = fail
    two = Reader(brokers, "two", owners=Owners(), **EAGER)
    brokers.run_until(two.start())
    brokers.run_until(lambda: [len(two.owned), len(one.owned)] == [3, 3])
    one.revocation_hook = None
    two.stop()
    brokers.run_until(lambda: one.partition_numbers == ALL)
    one.stop()


def test_member_may_stop_while_it_joins(brokers: SimulatedCluster) -> None:
    """A member that is stopped while it joins does not wait for the rebalance."""
    (one,) = start_readers(brokers, "one", **EAGER, rebalance_timeout_s=120.0)
    one.revocation_hook = delay(one, 100.0)
    two = Reader(brokers, "two", **EAGER, rebalance_timeout_s=120.0)
    started = two.start()
    brokers.run(5.0)
    before_s = brokers.simulation.now_s
    two.stop()
    assert brokers.simulation.now_s - before_s < 1.0
    assert started.called
    one.revocation_hook = None
    brokers.run_until(lambda: len(one.calls) > 2, 130.0)
    assert one.partition_numbers == ALL
    one.stop()


def test_cancelled_members_leave_no_timers(brokers: SimulatedCluster) -> None:
    """Cancelling ``start`` and ``stop`` leaves no timer."""
    (one,) = start_readers(brokers, "one", **EAGER, rebalance_timeout_s=120.0)
    one.revocation_hook = delay(one, 100.0)
    two = Reader(brokers, "two", **EAGER, rebalance_timeout_s=120.0)
    started = two.start()
    brokers.run(5.0)
    ended = []
    started.addErrback(ended.append)
    started.cancel()
    two.stop()
    stopping = Deferred.fromCoroutine(one.membership.stop())
    brokers.run(1.0)
    stopping.addErrback(ended.append)
    stopping.cancel()
    assert [failure.type for failure in ended] == [CancelledError, CancelledError]
    one.stop()
    brokers.run(6.0)
    assert one.owned == frozenset()
    for reader in (one, two):
        assert reader.host.runtime.reactor.getDelayedCalls() == []


def test_final_errors() -> None:
    """An error is final unless a retry, a rejoin or another coordinator could help."""
    actions = {code: error_action(BrokerRefused(code, "x")) for code in ErrorCode if code is not ErrorCode.NONE}
    assert actions[ErrorCode.REBALANCE_IN_PROGRESS] is ErrorAction.REJOIN
    assert actions[ErrorCode.NOT_COORDINATOR] is ErrorAction.LOOK_UP
    assert actions[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] is ErrorAction.WAIT
    assert actions[ErrorCode.GROUP_AUTHORIZATION_FAILED] is ErrorAction.FINAL
    assert error_action(ConnectionLost("x")) is ErrorAction.LOOK_UP
    assert error_action(UnsupportedVersion("x")) is ErrorAction.FINAL
    assert error_action(MalformedResponse("x")) is ErrorAction.FINAL


def test_invalid_options_are_refused() -> None:
    for invalid in (
        {"group_id": ""},
        {"instance_id": ""},
        {"protocol": "new"},
        {"heartbeat_interval_s": 45.0},
        {"rebalance_timeout_s": 0.0},
    ):
        with pytest.raises(ValueError, match=r"."):
            GroupOptions(**{"group_id": "g", **invalid})  # type: ignore[arg-type]
