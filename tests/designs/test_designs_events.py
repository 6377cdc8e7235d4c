"""Under each design, every event leaves a working cluster, and costs what the design predicts."""

from __future__ import annotations

from functools import cache

import pytest

from kreplica.testing.designs.layout import Layout, Shape
from kreplica.testing.designs.leader_coordinated import CoordinatedAgent, FollowerState, InvalidTransition
from kreplica.testing.designs.measure import DESIGNS, Case, CaseResult, CaseRun, EventResult, run_case

SHAPE = Shape(partitions=40, brokers=4, replication_factor=3)


@cache
def result_of(design: str, *, one_by_one: bool = False) -> CaseResult:
    return run_case(Case(design, SHAPE, 1.0, one_by_one))


def event(result: CaseResult, name: str) -> EventResult:
    return next(each for each in result.events if each.event == name)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_every_partition_is_led_after_every_event(design: str, one_by_one: bool) -> None:
    """After every event, each partition has a leader, with pipelined or synchronous requests."""
    result = result_of(design, one_by_one=one_by_one)
    assert [each.event for each in result.events if each.outages.left] == []
    assert event(result, "whole cluster starts").outages.affected == SHAPE.partitions


@pytest.mark.parametrize("design", ["race", "leader"])
def test_a_follower_that_fetches_during_the_isr_write_joins(design: str) -> None:
    """A follower that fetches while a slow new leader writes its ISR joins the ISR, and can lead if the leader dies."""
    run = CaseRun(Case(design, Shape(500, 3), 4.0, one_by_one=True))
    death = event(run.run(("broker dies",)), "broker dies")
    assert death.outages.affected > 0
    assert death.outages.left == 0


@pytest.mark.parametrize("design", DESIGNS)
def test_a_cluster_returns_to_the_same_watches(design: str) -> None:
    """After a broker's return and after a topic's deletion, the number of watches is the same as after the start.

    The exception is the second design: followers notice the end of their leader before its request to close, and each
    leaves a watch on the deleted leader znode.
    """
    result = result_of(design)
    start = event(result, "whole cluster starts").watches_at_end
    left = (SHAPE.replication_factor - 1) * SHAPE.partitions if design == "leader" else 0
    assert event(result, "topic deleted").watches_at_end == pytest.approx(start + left, abs=10)
    if design != "race":  # a leader that was not preferred still watches the assignment
        assert event(result, "broker starts again").watches_at_end == pytest.approx(start, abs=5)


@pytest.mark.parametrize(("design", "expected"), [("race", 2 * 3 + 1), ("leader", 3 - 1), ("controller", 0)])
def test_watches_on_partitions(design: str, expected: int) -> None:
    """The designs set different numbers of watches per partition; under the controller, brokers set none."""
    assert result_of(design).partition_watches == expected * SHAPE.partitions


def test_a_death_changes_the_leaders_of_the_dead_broker_only() -> None:
    """When one of four brokers dies, a quarter of the partitions has no leader, most briefly with a controller."""
    deaths = {design: event(result_of(design), "broker dies") for design in DESIGNS}
    assert {each.outages.affected for each in deaths.values()} == {SHAPE.partitions // 4}
    assert deaths["controller"].outages.last_s < min(deaths[name].outages.first_s for name in ("race", "leader"))


def test_a_controlled_shutdown_moves_leaders_first() -> None:
    """With a controller, another broker leads before the old leader stops; the other designs have an outage."""
    shutdowns = {design: event(result_of(design), "controlled shutdown").outages for design in DESIGNS}
    assert shutdowns["controller"].last_s < 0.0005
    assert min(shutdowns[name].first_s for name in ("race", "leader")) > 0.0005


def test_truncation_by_epoch_keeps_what_the_leader_has() -> None:
    """After a leader's death, followers keep their logs with a controller, but truncate a batch in other designs."""
    deaths = {design: event(result_of(design), "broker dies").counts for design in DESIGNS}
    assert deaths["controller"]["truncated_bytes"] == 0
    assert deaths["race"]["truncated_bytes"] == deaths["leader"]["truncated_bytes"] > 0


def test_runs_are_deterministic() -> None:
    """Two runs of the same case return the same rows."""
    case = Case("leader", Shape(10, 3), 1.0)
    assert run_case(case).rows() == run_case(case).rows()


def test_a_new_topic_is_replicated_by_all_designs() -> None:
    """A new topic is replicated; after a reassignment, exactly the new replicas have logs."""
    for design in ("race", "leader"):
        run = CaseRun(Case(design, SHAPE, 1.0))
        run.run(("topic created", "reassignment"))
        agents = run.design.agents  # type: ignore[attr-defined]
        for partition in run.cluster.layout.topics["new-topic"]:
            holders = {broker for broker, agent in agents.items() if partition in agent.replicas}
            assert holders == set(partition.replicas), (design, partition)


def test_the_leader_refuses_an_invalid_transition() -> None:
    """A closed replica cannot join the in-sync replicas without a start."""
    run = CaseRun(Case("leader", Shape(3, 3), 1.0))
    run.run(())
    agent: CoordinatedAgent = run.design.agents[1]  # type: ignore[attr-defined]
    partition = next(iter(agent.states))
    follower = next(iter(agent.states[partition]))
    agent.states[partition][follower] = FollowerState.CLOSED
    with pytest.raises(InvalidTransition, match=f"replica {follower}: from closed to in sync"):
        agent.fetched(partition, follower)


@pytest.mark.parametrize("shape", [Shape(100, 3), Shape(60, 5, 3), Shape(10, 2)])
def test_replicas_are_spread(shape: Shape) -> None:
    """A partition's replicas are on different brokers, and each broker has the same number of replicas."""
    replicas = [each.replicas for each in Layout(shape).all()]
    assert all(len(set(each)) == shape.replication_factor for each in replicas)
    counts = [sum(broker in each for each in replicas) for broker in shape.broker_ids]
    assert max(counts) - min(counts) <= shape.replication_factor * 2
