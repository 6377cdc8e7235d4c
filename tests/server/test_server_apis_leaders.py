"""ElectLeaders and ControlledShutdown over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kreplica.wire.messages import CONTROLLED_SHUTDOWN, CREATE_TOPICS, ELECT_LEADERS
from tests.support.broker_scene import Row, Scene, create_body, on_broker


async def elect(scene: Scene, election_type: int, wanted: list[Row] | None, version: int | None = None) -> Row:
    body: dict[str, Any] = {"election_type": election_type, "topic_partitions": wanted, "timeout_ms": 5000}
    answer = await scene.ask(ELECT_LEADERS, body, version)
    rows = answer["replica_election_results"]
    return {
        "error": answer.get("error_code", 0),
        "results": {
            (row["topic"], each["partition_id"]): each["error_code"] for row in rows for each in row["partition_result"]
        },
        "texts": [each["error_message"] for row in rows for each in row["partition_result"]],
    }


def rows(topic: str, *partitions: int) -> list[Row]:
    return [{"topic": topic, "partitions": list(partitions)}]


def test_elections_are_answered_by_partition(tmp_path: Path) -> None:
    """A request for some partitions gets a row for each; a request for all gets rows only for those that needed an
    election."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        assert list(scene.versions(ELECT_LEADERS)) == [0, 1, 2]
        for version in scene.versions(ELECT_LEADERS):
            asked = await elect(scene, 0, [*rows("t", 0, 1, 7), *rows("u", 0)], version)
            assert asked["error"] == 0
            assert asked["results"] == {("t", 0): 84, ("t", 1): 84, ("t", 7): 3, ("u", 0): 3}
            assert all(asked["texts"])
            everything = await elect(scene, 0, None, version)
            assert (everything["error"], everything["results"]) == (0, {})
        unclean = await elect(scene, 1, rows("t", 0))
        assert unclean["results"] == {("t", 0): 84}
        assert (await elect(scene, 5, rows("t", 0)))["error"] == 42

    on_broker(tmp_path, scenario)


def test_only_the_controller_elects_leaders_and_shuts_down_brokers(tmp_path: Path) -> None:
    """Other brokers return NOT_CONTROLLER: at the top level, or in version 0 for each partition."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 1)
        await scene.broker.controller.stop()
        assert await elect(scene, 0, rows("t", 0)) == {"error": 41, "results": {("t", 0): 41}, "texts": [None]}
        assert (await elect(scene, 0, rows("t", 0), 0))["results"] == {("t", 0): 41}
        answer = await scene.ask(CONTROLLED_SHUTDOWN, {"broker_id": 1, "broker_epoch": -1})
        assert answer == {"error_code": 41, "remaining_partitions": []}

    on_broker(tmp_path, scenario)


def test_controlled_shutdown_moves_leadership(tmp_path: Path) -> None:
    """Partitions with a single replica do not block a shutdown; another process's broker epoch is rejected; other
    clients keep working."""

    async def scenario(scene: Scene) -> None:
        body = create_body("t", -1, factor=-1)
        body["topics"][0]["assignments"] = [{"partition_index": i, "broker_ids": [i + 1]} for i in range(2)]
        assert (await scene.ask(CREATE_TOPICS, body))["topics"][0]["error_code"] == 0
        epoch = scene.standalone.brokers[1].fence.broker_epoch
        ask = {"broker_id": 2, "broker_epoch": epoch - 1}
        assert (await scene.ask(CONTROLLED_SHUTDOWN, ask))["error_code"] == 77
        assert (await scene.ask(CONTROLLED_SHUTDOWN, ask | {"broker_id": 9}))["error_code"] == 8
        assert list(scene.versions(CONTROLLED_SHUTDOWN)) == [2, 3]
        for version in scene.versions(CONTROLLED_SHUTDOWN):
            answer = await scene.ask(CONTROLLED_SHUTDOWN, {"broker_id": 2, "broker_epoch": epoch}, version)
            assert answer == {"error_code": 0, "remaining_partitions": []}

    on_broker(tmp_path, scenario, brokers=2)
