"""Members of classic groups: cooperation, static members, and final errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Owners, Reader, begin, new_brokers, settle, waiting
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
    """Three brokers and the topic t with six partitions."""
    simulated = new_brokers()
    yield simulated
    assert simulated.simulation.failures == []
    simulated.stop()


def test_cooperative_members_revoke_only_moving_partitions(brokers: SimulatedCluster) -> None:
    """Remaining members keep their partitions without interruption while others join and leave."""
    one, two = begin(brokers, "one", "two", **COOPERATIVE)
    assert one.calls == [("assigned", ALL), ("revoked", [3, 4, 5])]
    one.calls.clear()
    two.calls.clear()
    three = Reader(brokers, "three", owners=one.owners, **COOPERATIVE)
    brokers.run_until(three.start())
    settle(brokers, one, two, three)
    revoked = [numbers for reader in (one, two) for what, numbers in reader.calls if what == "revoked"]
    assert [len(numbers) for numbers in revoked] == [1, 1]
    kept = [one.has, two.has]
    three.stop()
    settle(brokers, one, two)
    assert kept[0] <= one.has
    assert kept[1] <= two.has
    one.stop()
    two.stop()


def test_cooperative_member_commits_while_others_join(brokers: SimulatedCluster) -> None:
    """A member commits during a rebalance that waits for another member."""
    one, two = begin(brokers, "one", "two", **COOPERATIVE, rebalance_timeout_s=60.0)
    two.before_giving = waiting(two, 20.0)
    one.membership.subscribe(["t", "other"])
    two.membership.subscribe(["other"])
    brokers.run(3.0)
    assert len(one.has) == 3
    brokers.run_until(one.membership.commit({each: CommittedOffset(7) for each in one.has}))
    brokers.run_until(lambda: one.numbers == ALL)
    two.before_giving = None
    one.stop()
    two.stop()


def test_static_member_keeps_its_assignment(brokers: SimulatedCluster) -> None:
    """The member returns within its session, without a rebalance."""
    one, two = [Reader(brokers, name, owners=Owners(), **EAGER, instance_id=name) for name in ("one", "two")]
    for reader in (one, two):
        brokers.run_until(reader.start())
    brokers.run_until(lambda: len(one.has) == len(two.has) == 3)
    calls, had, generation = list(two.calls), one.numbers, two.membership.identity.generation
    one.stop()
    brokers.run(3.0)
    again = Reader(brokers, "one", owners=Owners(), **EAGER, instance_id="one")
    brokers.run_until(again.start())
    brokers.run(15.0)
    assert (again.numbers, two.calls, two.membership.identity.generation) == (had, calls, generation)
    again.stop()
    brokers.run_until(lambda: two.numbers == ALL)  # its session has ended
    two.stop()


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_static_leader_leads_again(brokers: SimulatedCluster, kind: str) -> None:
    """The leader assigns nothing when it returns (KIP-814), but does so when others join."""
    options = {**KINDS[kind], "instance_id": "one"}
    one = Reader(brokers, "one", owners=Owners(), **options)
    brokers.run_until(one.start())
    one.stop()
    again = Reader(brokers, "one", **options)
    brokers.run_until(again.start())
    assert again.numbers == ALL
    two = Reader(brokers, "two", owners=again.owners, **KINDS[kind])
    brokers.run_until(two.start())
    settle(brokers, again, two)
    again.stop()
    two.stop()


def test_replaced_static_member_ends(brokers: SimulatedCluster) -> None:
    """The replaced member ends with an error; two members never have the same instance id."""
    one = Reader(brokers, "one", **EAGER, instance_id="same")
    brokers.run_until(one.start())
    two = Reader(brokers, "two", **EAGER, instance_id="same")
    brokers.run_until(two.start())
    brokers.run_until(lambda: one.ended is not None)
    assert one.ended is one.membership.error
    assert isinstance(one.ended, BrokerRefused)
    assert one.ended.code is ErrorCode.FENCED_INSTANCE_ID
    assert one.calls[-1] == ("lost", ALL)
    assert two.numbers == ALL
    one.stop()
    two.stop()


def test_member_without_a_common_assignor_is_refused(brokers: SimulatedCluster) -> None:
    """``start`` raises the broker's error, and the listener is not called."""
    (one,) = begin(brokers, "one", **EAGER)
    two = Reader(brokers, "two", protocol="classic", assignors=("sticky",))
    with pytest.raises(BrokerRefused, match="INCONSISTENT_GROUP_PROTOCOL"):
        brokers.run_until(two.start())
    assert two.ended is None
    two.stop()
    one.stop()


def test_exceptions_of_a_listener_are_logged(brokers: SimulatedCluster) -> None:
    """The membership continues."""
    (one,) = begin(brokers, "one", **EAGER)

    async def fail(partitions):
        one.has = frozenset()
        raise RuntimeError("an error in user code")

    one.before_giving = fail
    two = Reader(brokers, "two", owners=Owners(), **EAGER)
    brokers.run_until(two.start())
    brokers.run_until(lambda: [len(two.has), len(one.has)] == [3, 3])
    one.before_giving = None
    two.stop()
    brokers.run_until(lambda: one.numbers == ALL)
    one.stop()


def test_member_may_stop_while_it_joins(brokers: SimulatedCluster) -> None:
    """The member does not wait for the rebalance."""
    (one,) = begin(brokers, "one", **EAGER, rebalance_timeout_s=120.0)
    one.before_giving = waiting(one, 100.0)
    two = Reader(brokers, "two", **EAGER, rebalance_timeout_s=120.0)
    started = two.start()
    brokers.run(5.0)
    before_s = brokers.simulation.now_s
    two.stop()
    assert brokers.simulation.now_s - before_s < 1.0
    assert started.called
    one.before_giving = None
    brokers.run_until(lambda: len(one.calls) > 2, 130.0)
    assert one.numbers == ALL
    one.stop()


def test_cancelled_members_leave_no_timers(brokers: SimulatedCluster) -> None:
    """Cancellation of ``start`` and ``stop`` leaves no timer and no connection."""
    (one,) = begin(brokers, "one", **EAGER, rebalance_timeout_s=120.0)
    one.before_giving = waiting(one, 100.0)
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
    assert one.has == frozenset()
    for reader in (one, two):
        assert reader.host.runtime.reactor.getDelayedCalls() == []


def test_final_errors() -> None:
    """Unknown errors are final only if a retry at another broker cannot succeed."""
    codes = {code: error_action(BrokerRefused(code, "x")) for code in ErrorCode if code is not ErrorCode.NONE}
    assert codes[ErrorCode.REBALANCE_IN_PROGRESS] is ErrorAction.REJOIN
    assert codes[ErrorCode.NOT_COORDINATOR] is ErrorAction.LOOK_UP
    assert codes[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] is ErrorAction.WAIT
    assert codes[ErrorCode.GROUP_AUTHORIZATION_FAILED] is ErrorAction.FINAL
    assert error_action(ConnectionLost("x")) is ErrorAction.LOOK_UP
    assert error_action(UnsupportedVersion("x")) is ErrorAction.FINAL
    assert error_action(MalformedResponse("x")) is ErrorAction.FINAL


def test_contradictory_options() -> None:
    """Contradicting options raise ValueError."""
    for wrong in (
        {"group_id": ""},
        {"instance_id": ""},
        {"protocol": "new"},
        {"heartbeat_interval_s": 45.0},
        {"rebalance_timeout_s": 0.0},
    ):
        with pytest.raises(ValueError, match=r"."):
            GroupOptions(**{"group_id": "g", **wrong})  # type: ignore[arg-type]
