"""AlterPartitionReassignments and ListPartitionReassignments, as used by Kafka's admin clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from kreplica.cluster import documents, znodes
from kreplica.model import TopicAssignment
from kreplica.wire.messages import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    LIST_PARTITION_REASSIGNMENTS,
)
from tests.support.broker_scene import Scene, create_body, on_broker

Row = dict[str, Any]


def targets(*rows: tuple[str, int, list[int] | None]) -> Row:
    topics = [{"name": t, "partitions": [{"partition_index": p, "replicas": replicas}]} for t, p, replicas in rows]
    return {"timeout_ms": 10_000, "topics": topics}


def codes(answer: Row) -> dict[tuple[str, int], int]:
    rows = [(topic["name"], row) for topic in answer["responses"] for row in topic["partitions"]]
    return {(name, row["partition_index"]): row["error_code"] for name, row in rows}


async def moves(scene: Scene, topics: list[Row] | None = None) -> dict[tuple[str, int], Row]:
    answer = await scene.ask(LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 10_000, "topics": topics})
    assert answer["error_code"] == 0
    return {(t["name"], row["partition_index"]): row for t in answer["topics"] for row in t["partitions"]}


async def create_topic(scene: Scene, name: str, replicas: list[int]) -> None:
    body = create_body(name, -1, factor=-1)
    body["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": replicas}]
    assert (await scene.ask(CREATE_TOPICS, body))["topics"][0]["error_code"] == 0


def test_a_replica_moves_to_another_broker(tmp_path: Path) -> None:
    """The response has a row per partition; after the move clients find the replica on its new broker."""

    async def scenario(scene: Scene) -> None:
        await create_topic(scene, "t", [1])
        await create_topic(scene, "u", [1])
        asked = targets(("t", 0, [2]), ("u", 0, []), ("u", 7, [1]), ("nobody", 0, [1]), ("u", 0, None))
        answer = await scene.ask(ALTER_PARTITION_REASSIGNMENTS, asked)
        assert answer["error_code"] == 0
        assert codes(answer) == {("t", 0): 0, ("u", 0): 85, ("u", 7): 3, ("nobody", 0): 3}

        def has_moved() -> bool:
            return scene.broker.metadata.topics["t"].partitions[0].replicas == (2,)

        await scene.until(has_moved, "the replica is on broker 2")
        assert scene.broker.metadata.topics["t"].partitions[0].leader == 2
        assert await moves(scene) == {}
        refused = codes(await scene.ask(ALTER_PARTITION_REASSIGNMENTS, targets(("t", 0, [2, 2]))))
        assert refused == {("t", 0): 39}

    on_broker(tmp_path, scenario, brokers=2)


def test_ongoing_move_is_listed_and_cancelled(tmp_path: Path) -> None:
    """During the move, no partitions can be added; a cancelled move restores the original state."""

    async def scenario(scene: Scene) -> None:
        # Broker 3 is not running, so the move to it stays pending.
        moving = TopicAssignment("t", UUID(int=7), {0: (3, 1)}, adding={0: (3,)}, removing={0: (1,)})
        await scene.zookeeper.create(znodes.topic_path("t"), documents.encode_topic(moving))
        await create_topic(scene, "u", [1])
        listed = {"partition_index": 0, "replicas": [3, 1], "adding_replicas": [3], "removing_replicas": [1]}
        assert await moves(scene) == {("t", 0): listed}
        assert await moves(scene, [{"name": "t", "partition_indexes": [0, 9]}]) == {("t", 0): listed}
        assert await moves(scene, [{"name": "u", "partition_indexes": [0]}]) == {}
        more = {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout_ms": 5000, "validate_only": False}
        assert (await scene.ask(CREATE_PARTITIONS, more))["results"][0]["error_code"] == 60
        assert codes(await scene.ask(ALTER_PARTITION_REASSIGNMENTS, targets(("t", 0, None)))) == {("t", 0): 0}
        assert await moves(scene) == {}
        await scene.until(lambda: scene.broker.metadata.topics["t"].partitions[0].replicas == (1,), "restored")
        assert (await scene.ask(CREATE_PARTITIONS, more))["results"][0]["error_code"] == 0

    on_broker(tmp_path, scenario)


def test_only_the_controller_moves_replicas(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await create_topic(scene, "t", [1])
        other = await scene.connect(scene.standalone.brokers[1])
        answer = await scene.ask(ALTER_PARTITION_REASSIGNMENTS, targets(("t", 0, [2])), connection=other)
        assert (answer["error_code"], answer["responses"]) == (41, [])
        answer = await scene.ask(LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 1, "topics": None}, connection=other)
        assert (answer["error_code"], answer["topics"]) == (41, [])

    on_broker(tmp_path, scenario, brokers=2)
