"""The leader selectors, case by case."""

from kreplica.controller.decisions.leader_election import (
    Election,
    elect_for_shutdown,
    elect_new,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)


def test_new_partition_is_led_by_the_first_live_replica():
    """All live replicas are in sync, because their logs are empty."""
    assert elect_new([3, 1, 2], {1, 2}) == Election(1, (1, 2))
    assert elect_new([3], {1, 2}) is None


def test_dead_leader_is_followed_by_the_first_live_in_sync_replica_of_the_assignment():
    """The order of the assignment determines the leader, and dead replicas leave the ISR."""
    assert elect_offline([1, 2, 3], [3, 2, 1], {2, 3}) == Election(2, (3, 2))


def test_no_leader_without_a_live_in_sync_replica():
    """A live replica that lacks records is not elected."""
    assert elect_offline([1, 2], [1], {2}) is None


def test_eligible_replica_leads_before_an_unclean_one():
    """A replica that has left the ISR holds every committed record if nothing has been committed since (KIP-966)."""
    assert elect_offline([1, 2, 3], [1], {2, 3}, eligible=[3], unclean_allowed=True) == Election(3, (3,))


def test_unclean_election_only_if_allowed():
    """The configuration may prefer availability to committed records."""
    assert elect_offline([1, 2], [1], {2}, unclean_allowed=True) == Election(2, (2,), unclean=True)
    assert elect_offline([1, 2], [1], set(), unclean_allowed=True) is None


def test_preferred_leader_must_live_and_be_in_sync():
    assert elect_preferred([1, 2], [2, 1], {1, 2}) == Election(1, (2, 1))
    assert elect_preferred([1, 2], [2], {1, 2}) is None
    assert elect_preferred([1, 2], [1, 2], {2}) is None
    assert elect_preferred([], [], {2}) is None


def test_reassigned_partition_is_led_by_one_of_its_new_replicas():
    assert elect_reassigned([4, 5], [1, 5, 4], {1, 4, 5}) == Election(4, (1, 5, 4))
    assert elect_reassigned([4, 5], [1], {1, 4, 5}) is None


def test_shutdown_moves_leadership_off_the_stopping_broker():
    """Stopping replicas leave the ISR; if only stopping replicas are in sync, no leader is elected."""
    assert elect_for_shutdown([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1}) == Election(2, (2, 3))
    assert elect_for_shutdown([1, 2], [1], {1, 2}, {1}) is None
