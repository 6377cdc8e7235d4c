"""Plans run on four brokers under load while brokers die: no acknowledged record is lost, and every plan ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from broker_runs import TOPIC
from cluster_runs import run_with_timeline, seeds, traced_run

from kreplica.cluster.plans.plan import PlanState, StepState
from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.cluster.state import assignment_of, replicas_of
from kreplica.testing.storms.replicated_run import ReplicatedRun
from tests.support.planner import Planner

pytestmark = pytest.mark.usefixtures("logged_errors")

PARTITIONS = 4


def loaded_run(seed: int) -> ReplicatedRun:
    return traced_run(seed, brokers=4, partitions=PARTITIONS)


@contextmanager
def planned_run(seed: int) -> Iterator[tuple[ReplicatedRun, Planner]]:
    with run_with_timeline(seed, loaded_run) as run:
        planner = Planner(run.cluster)
        run.run_until_acknowledged(40)
        yield run, planner
        planner.close()
        run.converge()


def run_to_first_finished_step(run: ReplicatedRun, planner: Planner, plan_id: str) -> None:
    """Run until the first step has finished, so that the plan has steps in different states."""
    run.cluster.run_until(lambda: planner.count(plan_id, StepState.FINISHED) > 0)


def wait_for_copying_broker(run: ReplicatedRun) -> int:
    """Wait until a broker is copying a partition, and return it."""

    def brokers_added() -> list[int]:
        assignment = assignment_of(run.cluster, TOPIC)
        return [broker for brokers in assignment.adding.values() for broker in brokers] if assignment else []

    run.cluster.run_until(lambda: bool(brokers_added()))
    return brokers_added()[0]


def replica_lists(run: ReplicatedRun) -> list[tuple[int, ...]]:
    return [replicas_of(run.cluster, key) for key in run.keys]


@pytest.mark.parametrize("seed", seeds([1]))
def test_a_drained_broker_has_and_gets_no_replicas(seed: int) -> None:
    """After a drain, the broker has no replicas and no files, and a new topic places no replica on it."""
    with planned_run(seed) as (run, planner):
        plan_id = planner.make({"kind": "drain", "brokers": [2], "moves_at_once": 1}, topics=[TOPIC])
        assert planner.until_ended(plan_id) is PlanState.COMPLETED
        assert all(2 not in replicas for replicas in replica_lists(run))
        client = run.cluster.client(broker=1)
        run.cluster.run_until(client.create_topic("new", 6, replication_factor=3))
        run.cluster.run(1)
        topic = run.cluster.brokers[1].program.metadata.topic("new")
        assert topic is not None
        assert all(2 not in partition.replicas for partition in topic.partitions.values())
        with pytest.raises(KafkaError) as refused:
            run.cluster.run_until(client.create_topic("too-many", 1, replication_factor=4))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "[2] are cordoned" in str(refused.value)
        # Consumer groups need this topic: it may use a cordoned broker if there are too few others.
        run.cluster.run_until(client.create_topic(CONSUMER_OFFSETS, 1, replication_factor=4))
        run.cluster.run_until(client.close())
        run.cluster.run_until(lambda: not any(key in run.machine(2).program.directories.logs for key in run.keys))


@pytest.mark.parametrize("seed", seeds([1]))
@pytest.mark.parametrize("victim", ["controller", "drained", "copying"])
def test_a_plan_ends_although_a_broker_dies(seed: int, victim: str) -> None:
    """A plan completes after the controller, the drained broker, or a broker that copies a partition dies."""
    with planned_run(seed) as (run, planner):
        body = {"kind": "drain", "brokers": [2], "moves_at_once": 1, "throttle_bytes_per_second": 100_000}
        plan_id = planner.make(body, topics=[TOPIC])
        run_to_first_finished_step(run, planner, plan_id)
        controller = run.cluster.controller()
        assert controller is not None
        chosen = {"controller": controller, "drained": 2, "copying": wait_for_copying_broker(run)}[victim]
        run.kill(chosen)
        run.run_until_acknowledged(20, timeout_s=60)
        run.start(chosen)
        assert planner.until_ended(plan_id) is PlanState.COMPLETED
        assert all(2 not in replicas for replicas in replica_lists(run))
        run.cluster.run_until(lambda: planner.throttle is None)


@pytest.mark.parametrize("seed", seeds([1]))
def test_consecutive_controllers_die_during_a_plan(seed: int) -> None:
    """Two controllers die during a plan; the third one completes it."""
    with planned_run(seed) as (run, planner):
        plan_id = planner.make({"kind": "drain", "brokers": [2], "moves_at_once": 1}, topics=[TOPIC])
        for _ in range(2):
            controller = run.cluster.controller()
            assert controller is not None
            run.kill(controller)
            run.cluster.run_until(lambda: run.cluster.controller() is not None, 30)
            run.start(controller)
        assert planner.until_ended(plan_id) is PlanState.COMPLETED


@pytest.mark.parametrize("seed", seeds([1]))
def test_a_rollback_restores_the_original_assignment(seed: int) -> None:
    """The assignment is restored even if the controller dies during the rollback."""
    with planned_run(seed) as (run, planner):
        before = replica_lists(run)
        plan_id = planner.make({"kind": "drain", "brokers": [2], "moves_at_once": 1}, topics=[TOPIC])
        run_to_first_finished_step(run, planner, plan_id)
        planner.cancel(plan_id, rollback=True)
        controller = run.cluster.controller()
        assert controller is not None
        run.kill(controller)
        run.run_until_acknowledged(10, timeout_s=60)
        run.start(controller)
        assert planner.until_ended(plan_id) is PlanState.CANCELLED
        assert replica_lists(run) == before


@pytest.mark.parametrize("seed", seeds([1]))
def test_a_throttle_applies_only_to_added_replicas(seed: int) -> None:
    """A throttle slows down the copying, but not producers with acks=all."""
    with planned_run(seed) as (run, planner):
        run.run_until_acknowledged(100)
        before = replica_lists(run)
        plan_id = planner.make({"kind": "drain", "brokers": [2], "throttle_bytes_per_second": 400}, topics=[TOPIC])
        run.cluster.run(2)
        acknowledged = run.history.acked_count
        run.cluster.run(4)
        assert run.history.acked_count > acknowledged + 100, "replicas in sync are not throttled"
        assert replica_lists(run) != before
        assert planner.count(plan_id, StepState.MOVING) > 0
        planner.change(plan_id, throttle_bytes_per_second=None)
        assert planner.until_ended(plan_id, 30) is PlanState.COMPLETED


@pytest.mark.parametrize("seed", seeds([1]))
def test_the_replication_factor_changes_in_one_step(seed: int) -> None:
    """One plan increases the replication factor of a topic, and another one reduces it."""
    with planned_run(seed) as (run, planner):
        for factor in (4, 3):
            body = {"kind": "replication_factor", "topics": [TOPIC], "replication_factor": factor}
            assert planner.until_ended(planner.make(body, topics=[TOPIC])) is PlanState.COMPLETED
            assert {len(replicas) for replicas in replica_lists(run)} == {factor}


ROUNDS = 6


def random_request(run: ReplicatedRun, random: Random) -> dict[str, Any]:
    """Return a random plan request, which may be rejected."""
    broker = random.randrange(1, 5)
    rows = [
        {"topic": TOPIC, "partition": key.partition, "replicas": random.sample(range(1, 5), 3)}
        for key in random.sample(run.keys, 2)
    ]
    body: dict[str, Any] = random.choice(
        [
            {"kind": "drain", "brokers": [broker]},
            {"kind": "rebalance"},
            {"kind": "reassign", "assignments": rows},
            {"kind": "replication_factor", "topics": [TOPIC], "replication_factor": random.choice([3, 4])},
        ]
    )
    throttle = random.choice([None, 300_000, 1_000_000])
    return {**body, "moves_at_once": random.randrange(1, 4), "throttle_bytes_per_second": throttle}


def disturb(run: ReplicatedRun, random: Random) -> None:
    """Inject one temporary fault."""
    broker = random.choice([run.cluster.controller() or 1, random.randrange(1, 5)])
    match random.randrange(4):
        case 0:
            run.kill(broker)
            run.cluster.run(random.uniform(0.1, 10))
            run.start(broker)
        case 1:
            run.note(f"the session of broker {broker} expires")
            run.cluster.expire_session(broker)
        case 2:
            run.note(f"broker {broker} is disconnected from ZooKeeper")
            run.network.cut(f"broker-{broker}", "coordinator")
            run.cluster.run(random.uniform(0.1, 10))
            run.network.heal()
        case 3:
            run.note(f"broker {broker} pauses")
            run.machine(broker).host.pause()
            run.cluster.run(random.uniform(0.1, 10))
            run.machine(broker).host.resume()


@pytest.mark.parametrize("seed", seeds([1]))
def test_plans_end_despite_faults(seed: int) -> None:
    """No plan fails, although several run at a time and brokers die, pause and lose their sessions."""
    with planned_run(seed) as (run, planner):
        random, plan_ids = Random(seed), []
        for _ in range(ROUNDS):
            body = random_request(run, random)
            try:
                plan_id = planner.make(body, topics=[TOPIC])
                plan_ids.append(plan_id)
                run.note(f"{plan_id}: {body}")
            except KafkaError as error:
                run.note(f"{body} is rejected: {error}")
            run.cluster.run(random.choice([0.01, 0.1, 1.0]))
            open_plans = [each for each in plan_ids if not planner.plan(each).state.is_ended]
            if open_plans and random.random() < 0.4:
                chosen, rollback = random.choice(open_plans), random.random() < 0.5
                run.note(f"{chosen} is cancelled{', and rolled back' if rollback else ''}")
                planner.cancel(chosen, rollback=rollback)
            disturb(run, random)
        run.settle()
        for plan_id in plan_ids:
            planner.until_ended(plan_id)
            assert planner.plan(plan_id).state is not PlanState.FAILED, planner.plan(plan_id).reason
        run.cluster.run_until(lambda: planner.throttle is None)
