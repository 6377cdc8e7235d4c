"""Replicas move between four brokers under load while brokers fail: no acknowledged record is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from broker_runs import TOPIC
from cluster_runs import run_with_timeline, seeds, traced_run

from kreplica.client.errors import ClientError
from kreplica.cluster import documents, znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.cluster.state import replicas_of, state_of, znode
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.wire import messages
from tests.support.broker_scene import batch

pytestmark = pytest.mark.usefixtures("logged_errors")

BROKERS = 4
Targets = Mapping[TopicPartition, "tuple[int, ...] | None"]


def four_brokers(seed: int) -> ReplicatedRun:
    return traced_run(seed, brokers=BROKERS)


class Mover:
    """An administrator that moves replicas with requests to the current controller."""

    def __init__(self, run: ReplicatedRun) -> None:
        self.run = run
        self.cluster = run.cluster

    def reassign(self, targets: Targets) -> dict[TopicPartition, int]:
        """Request a reassignment, retrying until a controller accepts it, and return an error code per partition."""
        self.run.note(f"move {', '.join(f'{p.partition} to {target}' for p, target in targets.items())}")
        for _ in range(60):
            controller = self.cluster.controller()
            if controller is not None:
                answer = self._try_reassign(controller, targets)
                if answer is not None:
                    return answer
            self.cluster.run(0.5)
        raise AssertionError("no controller accepted the reassignment")

    def _try_reassign(self, controller: int, targets: Targets) -> dict[TopicPartition, int] | None:
        rows = [
            {"name": p.topic, "partitions": [{"partition_index": p.partition, "replicas": target}]}
            for p, target in targets.items()
        ]
        client = self.cluster.client(broker=controller)
        body = {"timeout_ms": 10000, "topics": rows}
        try:
            answer = self.cluster.run_until(client.request(messages.ALTER_PARTITION_REASSIGNMENTS, body))
        except ClientError:
            return None  # the controller died
        finally:
            self.cluster.run_until(client.close())
        if answer["error_code"]:
            assert answer["error_code"] == ErrorCode.NOT_CONTROLLER
            return None
        return {
            TopicPartition(topic["name"], row["partition_index"]): row["error_code"]
            for topic in answer["responses"]
            for row in topic["partitions"]
        }

    def other_replicas(self, key: TopicPartition) -> tuple[int, ...]:
        """Return an assignment in which the broker without a replica replaces the preferred leader."""
        now = replicas_of(self.cluster, key)
        (free,) = (broker for broker in range(1, BROKERS + 1) if broker not in now)
        return (free, *now[1:])

    @property
    def is_moving(self) -> bool:
        node = znode(self.cluster, znodes.topic_path(TOPIC))
        assert node is not None
        assignment = documents.decode_topic(TOPIC, node.data or b"")
        return bool(assignment.adding or assignment.removing)

    def run_until_moved(self, timeout_s: float = 60.0) -> None:
        """Run until no replica is being added or removed."""
        self.cluster.run_until(lambda: not self.is_moving, timeout_s)

    def check_files(self) -> None:
        """Check that exactly the assigned replicas have files."""
        for key in self.run.keys:
            holders = {b for b, machine in self.cluster.brokers.items() if key in machine.program.directories.logs}
            assert holders == set(replicas_of(self.cluster, key)), str(key)


@pytest.mark.parametrize("seed", seeds([1, 2, 3]))
def test_replicas_move_under_load(seed: int) -> None:
    """Every partition moves to a new leader on another broker; the files of removed replicas are deleted."""
    with run_with_timeline(seed, four_brokers) as run:
        mover = Mover(run)
        for _ in range(3):
            run.run_until_acknowledged(30)
            targets = {key: mover.other_replicas(key) for key in run.keys}
            assert set(mover.reassign(targets).values()) == {0}
            run.run_until_acknowledged(10)
            mover.run_until_moved()
            for key, target in targets.items():
                assert replicas_of(run.cluster, key) == target
                state = state_of(run.cluster, key)
                assert state is not None
                assert set(state.isr) == set(target)
            mover.check_files()
        run.converge()


@pytest.mark.parametrize("seed", seeds([1, 2]))
@pytest.mark.parametrize("victim", ["controller", "leader", "new replica", "old replica"])
def test_a_broker_dies_during_a_move(seed: int, victim: str) -> None:
    """A broker dies during a move: records are still acknowledged, and the move completes after its restart."""
    with run_with_timeline(seed, four_brokers) as run:
        mover = Mover(run)
        run.run_until_acknowledged(30)
        target = mover.other_replicas(run.keys[0])
        others = [broker for broker in replicas_of(run.cluster, run.keys[0]) if broker != run.leader()]
        assert mover.reassign({run.keys[0]: target}) == {run.keys[0]: 0}
        controller = run.cluster.controller()
        assert controller is not None
        chosen = {
            "controller": controller,
            "leader": run.leader(),
            "new replica": target[0],
            "old replica": others[0],
        }[victim]
        run.kill(chosen)
        run.run_until_acknowledged(30, timeout_s=60)
        run.start(chosen)
        mover.run_until_moved()
        assert replicas_of(run.cluster, run.keys[0]) == target
        run.settle()
        mover.check_files()
        run.converge()


@pytest.mark.parametrize("seed", seeds([1, 2]))
def test_a_move_is_cancelled_under_load(seed: int) -> None:
    """A cancelled move restores the old assignment, whether or not the new replica had caught up."""
    with run_with_timeline(seed, four_brokers) as run:
        mover = Mover(run)
        key = run.keys[0]
        for steps in (0, 200, 1000):
            run.run_until_acknowledged(20)
            before = set(replicas_of(run.cluster, key))
            mover.reassign({key: mover.other_replicas(key)})
            run.steps(steps)
            (error,) = mover.reassign({key: None}).values()
            assert error in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            mover.run_until_moved()
            if error == 0:
                assert set(replicas_of(run.cluster, key)) == before
        run.settle()
        mover.check_files()
        run.converge()


@pytest.mark.parametrize("seed", seeds([1, 4]))
def test_moves_in_a_storm(seed: int) -> None:
    """Moves are replaced and cancelled at random while brokers die and restart; in the end all moves are complete."""
    storm(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(range(2000, 2040)))
def test_moves_in_many_storms(seed: int) -> None:
    storm(seed)


def storm(seed: int) -> None:
    with run_with_timeline(seed, four_brokers) as run:
        mover = Mover(run)
        dead: list[int] = []
        for _ in range(12):
            action = run.random.choice(["move", "move", "cancel", "kill", "start", "wait"])
            if action == "move":
                replicas = run.random.sample(range(1, BROKERS + 1), run.random.choice([2, 3, 3, 4]))
                mover.reassign({run.random.choice(run.keys): tuple(replicas)})
            elif action == "cancel":
                mover.reassign({run.random.choice(run.keys): None})
            elif action == "kill" and not dead:
                dead.append(run.random.randrange(1, BROKERS + 1))
                run.kill(dead[0])
            elif action == "start" and dead:
                run.start(dead.pop())
            run.cluster.run(run.random.random() * run.random.choice([0.1, 1.0, 10.0]))
        run.start_all()
        mover.run_until_moved(120)
        run.settle()
        mover.check_files()
        run.converge()


def test_a_removed_partition_number_is_used_again() -> None:
    """A removed partition rejects producers but serves consumers until it is deleted; its successor is empty."""
    with run_with_timeline(1, four_brokers) as run:
        cluster, key = run.cluster, TopicPartition("shrinking", 2)
        admin = cluster.client()
        cluster.run_until(admin.create_topic(key.topic, 3, {}, replication_factor=3))
        client = cluster.leader_client(*key, name="writer")
        assert cluster.run_until(client.produce(*key, batch(b"old"))) == 0
        zookeeper = cluster.brokers[1].program.client
        cluster.run_until(zookeeper.create(znodes.partitions_remove_path(key.topic)))
        cluster.run_until(zookeeper.create(znodes.partitions_remove_path(*key), encode_removal(5000)))
        cluster.run(2)
        with pytest.raises(KafkaError) as refused:
            cluster.run_until(client.produce(*key, batch(b"late")))
        assert refused.value.code.retriable
        assert [record.value for record in cluster.run_until(client.read_all(*key))] == [b"old"]
        assert partitions_of(cluster.run_until(admin.metadata()), key.topic) == [0, 1, 2]
        cluster.run(5)
        assert partitions_of(cluster.run_until(admin.metadata()), key.topic) == [0, 1]
        assert not any(key in machine.program.directories.logs for machine in cluster.brokers.values())

        cluster.run_until(zookeeper.create(znodes.partitions_add_path(key.topic)))
        cluster.run_until(zookeeper.create(znodes.partitions_add_path(*key), encode_addition((2, 3, 4))))
        cluster.run(2)
        again = cluster.leader_client(*key, name="writer-again")
        assert cluster.run_until(again.produce(*key, batch(b"new"))) == 0
        assert [record.value for record in cluster.run_until(again.read_all(*key))] == [b"new"]
        state = state_of(cluster, key)
        assert state is not None
        assert state.leader_epoch == 2, "above the leader epoch of the removed partition"
        for each in (admin, client, again):
            cluster.run_until(each.close())
        run.converge()


def partitions_of(metadata: dict[str, Any], topic: str) -> list[int]:
    """Return the topic's partition numbers in the metadata."""
    (row,) = (row for row in metadata["topics"] if row["name"] == topic)
    return sorted(partition["partition_index"] for partition in row["partitions"])
