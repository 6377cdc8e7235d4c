"""Creating, extending, deleting and listing topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kreplica.client.errors import ConnectionLost
from kreplica.wire.messages import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CLUSTER, FETCH, METADATA
from tests.support.broker_scene import NO_ID, Row, Scene, batch, create_body, fetch_body, on_broker

UNKNOWN_ID = UUID(int=77)


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Row:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [],
        "configs": [],
        **more,
    }


def assigned(*replicas: tuple[int, list[int]]) -> list[Row]:
    return [{"partition_index": index, "broker_ids": brokers} for index, brokers in replicas]


async def create(scene: Scene, *topics: Row, validate_only: bool = False, timeout_ms: int = 10_000) -> dict[str, Row]:
    body = {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": validate_only}
    return {row["name"]: row for row in (await scene.ask(CREATE_TOPICS, body))["topics"]}


async def delete(scene: Scene, *rows: Row) -> list[tuple[Any, int]]:
    answer = await scene.ask(DELETE_TOPICS, {"topics": list(rows), "timeout_ms": 10_000})
    return [(row["name"], row["error_code"]) for row in answer["responses"]]


def by_name(name: str) -> Row:
    return {"name": name, "topic_id": NO_ID}


def by_id(topic_id: UUID) -> Row:
    return {"name": None, "topic_id": topic_id}


# --- creating ---------------------------------------------------------------------------------------------------------


def test_topic_is_ready_when_its_creation_is_answered(tmp_path: Path) -> None:
    """The first Produce, Fetch and Metadata after CreateTopics succeed."""

    async def scenario(scene: Scene) -> None:
        row = await scene.make_topic("t", 3, retention_ms="5000")
        assert (row["num_partitions"], row["replication_factor"]) == (3, 1)
        configs = {config["name"]: config for config in row["configs"]}
        assert (configs["retention.ms"]["value"], configs["retention.ms"]["config_source"]) == ("5000", 1)
        assert configs["segment.bytes"]["config_source"] == 5
        for partition in range(3):
            assert (await scene.produce("t", batch(b"v"), partition=partition))["error_code"] == 0
        known = (await scene.metadata("t"))["t"]
        assert known["topic_id"] == row["topic_id"] != NO_ID
        assert [(p["partition_index"], p["leader_id"], p["isr_nodes"]) for p in known["partitions"]] == [
            (0, 1, [1]),
            (1, 1, [1]),
            (2, 1, [1]),
        ]

    on_broker(tmp_path, scenario)


def test_minus_one_selects_the_broker_defaults(tmp_path: Path) -> None:
    """num.partitions and default.replication.factor apply if a client sends -1."""

    async def scenario(scene: Scene) -> None:
        row = (await create(scene, topic("t", -1, -1)))["t"]
        assert (row["error_code"], row["num_partitions"], row["replication_factor"]) == (0, 4, 1)

    on_broker(tmp_path, scenario, "num.partitions=4")


def test_invalid_topics_are_refused(tmp_path: Path) -> None:
    """Each failure has its error code and message; it does not affect other topics and leaves nothing behind."""
    cases = [
        (topic(""), 17),
        (topic("."), 17),
        (topic(".."), 17),
        (topic("a/b"), 17),
        (topic("ä"), 17),
        (topic("x" * 250), 17),
        (topic("there"), 36),
        (topic("a_b"), 17),
        (topic("p0", 0), 37),
        (topic("p-2", -2), 37),
        (topic("p-many", 10_001), 37),
        (topic("p-max", 2**31 - 1), 37),
        (topic("f0", 1, 0), 38),
        (topic("f2", 1, 2), 38),
        (topic("f-2", 1, -2), 38),
        (topic("both", 1, -1, assignments=assigned((0, [1]))), 42),
        (topic("both2", -1, 1, assignments=assigned((0, [1]))), 42),
        (topic("gap", -1, -1, assignments=assigned((1, [1]))), 39),
        (topic("twice", -1, -1, assignments=assigned((0, [1]), (0, [1]))), 39),
        (topic("dead", -1, -1, assignments=assigned((0, [9]))), 39),
        (topic("same", -1, -1, assignments=assigned((0, [1, 1]))), 39),
        (topic("none", -1, -1, assignments=assigned((0, []))), 39),
        (topic("unknown", configs=[{"name": "no.such", "value": "1"}]), 40),
        (topic("malformed", configs=[{"name": "retention.ms", "value": "soon"}]), 40),
        (topic("null", configs=[{"name": "retention.ms", "value": None}]), 40),
    ]

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("there")
        await scene.make_topic("a.b")
        for i, (row, code) in enumerate(cases):
            answer = await create(scene, row, topic(f"good{i}"))
            refused = answer.pop(row["name"])
            assert refused["error_code"] == code, refused
            assert refused["error_message"], row["name"]
            (good,) = answer.values()
            # A request for too many partitions is refused as a whole.
            assert good["error_code"] == (37 if row["num_partitions"] > 10_000 else 0), (row["name"], good)
        assert not {row["name"] for row, _ in cases if row["name"] != "there"} & set(await scene.metadata())

    on_broker(tmp_path, scenario)


def test_validate_only_creates_nothing(tmp_path: Path) -> None:
    """The response is the same as for a real creation."""

    async def scenario(scene: Scene) -> None:
        answer = await create(scene, topic("t", 2), topic("u", 0), validate_only=True)
        assert (answer["t"]["error_code"], answer["t"]["num_partitions"]) == (0, 2)
        assert answer["u"]["error_code"] == 37
        assert await scene.metadata() == {}

    on_broker(tmp_path, scenario)


def test_topic_named_twice_in_one_request_is_refused(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        body = {"topics": [topic("t"), topic("t", 2), topic("u")], "timeout_ms": 5000, "validate_only": False}
        answer = await scene.ask(CREATE_TOPICS, body)
        assert sorted((row["name"], row["error_code"]) for row in answer["topics"]) == [("t", 42), ("u", 0)]

    on_broker(tmp_path, scenario)


def test_creation_with_timeout_0(tmp_path: Path) -> None:
    """The client gets REQUEST_TIMED_OUT and the topic is created afterwards."""

    async def scenario(scene: Scene) -> None:
        assert (await create(scene, topic("t"), timeout_ms=0))["t"]["error_code"] == 7
        await scene.until(lambda: "t" in scene.broker.metadata.topics, "the topic is created")

    on_broker(tmp_path, scenario)


def test_replicas_are_placed_as_requested(tmp_path: Path) -> None:
    """With a replication factor or an explicit assignment, all new replicas are in sync, and leaders are spread over
    the brokers."""

    async def scenario(scene: Scene) -> None:
        row = (await create(scene, topic("r", 3, 3)))["r"]
        assert (row["error_code"], row["num_partitions"], row["replication_factor"]) == (0, 3, 3)
        partitions = (await scene.metadata("r"))["r"]["partitions"]
        assert sorted(p["leader_id"] for p in partitions) == [1, 2, 3]
        assert all(sorted(p["replica_nodes"]) == sorted(p["isr_nodes"]) == [1, 2, 3] for p in partitions)
        row = (await create(scene, topic("h", -1, -1, assignments=assigned((0, [3, 1])))))["h"]
        assert (row["error_code"], row["replication_factor"]) == (0, 2)
        assert (await scene.metadata("h"))["h"]["partitions"][0]["replica_nodes"] == [3, 1]
        assert (await create(scene, topic("t", 1, 4)))["t"]["error_code"] == 38
        uneven = topic("t", -1, -1, assignments=assigned((0, [1, 2]), (1, [1])))
        assert (await create(scene, uneven))["t"]["error_code"] == 39
        assert (await create(scene, topic("t", 3)))["t"]["error_code"] == 0
        assert (await create(scene, topic("u", -1, -1, assignments=assigned((0, [3])))))["u"]["error_code"] == 0
        leaders = [p["leader_id"] for p in (await scene.metadata("t"))["t"]["partitions"]]
        assert sorted(leaders) == [1, 2, 3]
        third = await scene.connect(scene.standalone.brokers[2])
        await scene.until(lambda: "u" in scene.standalone.brokers[2].metadata.topics, "broker 3 knows")
        answer = await scene.ask(FETCH, fetch_body("u", 0), 12, third)
        assert answer["responses"][0]["partitions"][0]["error_code"] == 0
        assert (await scene.fetch("u", 0))["error_code"] == 6, "broker 1 does not lead it"
        other = await scene.ask(CREATE_TOPICS, create_body("v"), connection=third)
        assert other["topics"][0]["error_code"] == 41, "only the controller creates topics"

    on_broker(tmp_path, scenario, brokers=3)


def test_client_that_disconnects_during_a_creation_causes_no_error(tmp_path: Path) -> None:
    """No error is logged at any point of the disconnect, and other clients are served."""

    async def scenario(scene: Scene) -> None:
        for i in range(6):
            other = await scene.connect()
            waiting = other.request(CREATE_TOPICS, 7, create_body(f"t{i}", 50))
            await scene.sleep(0.002 * i)
            await other.close()
            if i == 0:
                with pytest.raises(ConnectionLost):
                    await waiting
            else:
                waiting.addErrback(lambda failure: failure.trap(ConnectionLost))
        await scene.make_topic("t")

    on_broker(tmp_path, scenario)


# --- extending --------------------------------------------------------------------------------------------------------


def test_partitions_are_added_per_topic(tmp_path: Path) -> None:
    """Each topic has its own result; existing partitions keep their records."""

    async def scenario(scene: Scene) -> None:
        for name in "abcdefg":
            await scene.make_topic(name, 2)
        await scene.produce("a", batch(b"v"))
        cases = {
            "a": (3, None, 0),
            "b": (2, None, 37),
            "c": (1, None, 37),
            "d": (4, [[1], [1]], 0),
            "e": (4, [[1]], 39),
            "f": (3, [[9]], 39),
            "g": (20_000, None, 37),
            "missing": (2, None, 3),
        }
        body = {
            "topics": [
                {"name": name, "count": count, "assignments": rows and [{"broker_ids": r} for r in rows]}
                for name, (count, rows, _) in cases.items()
            ],
            "timeout_ms": 5000,
            "validate_only": True,
        }
        for body["validate_only"] in (True, False):
            answer = await scene.ask(CREATE_PARTITIONS, body)
            codes = {row["name"]: row["error_code"] for row in answer["results"]}
            assert codes == {name: code for name, (_, _, code) in cases.items()}
        counts = {name: len(row["partitions"]) for name, row in (await scene.metadata()).items()}
        assert counts == {"a": 3, "b": 2, "c": 2, "d": 4, "e": 2, "f": 2, "g": 2}
        assert (await scene.produce("a", batch(b"v"), partition=2))["error_code"] == 0
        assert (await scene.produce("a", batch(b"v")))["base_offset"] == 1

    on_broker(tmp_path, scenario)


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_name_of_a_deleted_topic_can_be_reused_at_once(tmp_path: Path) -> None:
    """A new topic with the same name has a new ID, no records and none of the old settings; the old ID is unknown."""

    async def scenario(scene: Scene) -> None:
        old = (await scene.make_topic("t", max_message_bytes="100"))["topic_id"]
        assert (await scene.produce("t", batch(b"x" * 200)))["error_code"] == 10
        await scene.produce("t", batch(b"v"))
        for _ in range(3):
            assert await delete(scene, by_name("t")) == [("t", 0)]
            new = (await scene.make_topic("t"))["topic_id"]
            assert new != old
        assert (await scene.produce("t", batch(b"x" * 200)))["base_offset"] == 0
        answer = await scene.ask(FETCH, fetch_body(None, 0, topic_id=old), 13)
        assert answer["responses"][0]["partitions"][0]["error_code"] == 100
        assert await delete(scene, by_id(old)) == [(None, 100)]
        assert await delete(scene, by_id(new)) == [("t", 0)]
        assert await scene.metadata() == {}
        (directory,) = scene.broker.directories.directories
        assert not directory.logs

    on_broker(tmp_path, scenario)


def test_invalid_deletions_are_refused(tmp_path: Path) -> None:
    """The deletions contain unknown names and IDs, names together with IDs, or the same topic twice."""

    async def scenario(scene: Scene) -> None:
        topic_id = (await scene.make_topic("t"))["topic_id"]
        rows = [by_name("missing"), by_id(UNKNOWN_ID), {"name": "t", "topic_id": topic_id}]
        assert await delete(scene, *rows) == [("missing", 3), (None, 100), ("t", 42)]
        assert await delete(scene, by_name("t"), by_name("t")) == [("t", 42), ("t", 42)]
        assert "t" in await scene.metadata()

    on_broker(tmp_path, scenario)


def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    """With delete.topic.enable=false, no topic is deleted."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        assert await delete(scene, by_name("t")) == [("t", 73)]

    on_broker(tmp_path, scenario, "delete.topic.enable=false")


# --- listing ----------------------------------------------------------------------------------------------------------


def test_metadata_lists_all_none_or_some_topics(tmp_path: Path) -> None:
    """Null requests all topics, an empty list none (but all in version 0); IDs work from version 12 on."""

    async def scenario(scene: Scene) -> None:
        topic_id = (await scene.make_topic("t"))["topic_id"]
        await scene.make_topic("u")

        async def ask(topics: list[Row] | None, version: int) -> list[tuple[Any, int]]:
            body = {"topics": topics, "allow_auto_topic_creation": False}
            answer = await scene.ask(METADATA, body, version)
            assert len(answer["brokers"]) == 1
            return [(row["name"], row["error_code"]) for row in answer["topics"]]

        both = [("t", 0), ("u", 0)]
        assert await ask([], 0) == both
        for version in (1, 8, 12):
            assert await ask(None, version) == both
            assert await ask([], version) == []
        assert await ask([by_name("u"), by_name("t"), by_name("u")], 12) == [("u", 0), ("t", 0)]
        assert await ask([by_id(topic_id), by_id(UNKNOWN_ID)], 12) == [(None, 100), ("t", 0)]
        assert await ask([{"name": None, "topic_id": topic_id}], 10) == [("", 42)], "ids came with version 12"
        assert await ask([by_name("a b"), by_name("missing")], 12) == [("a b", 17), ("missing", 3)]

    on_broker(tmp_path, scenario)


def test_topic_id_takes_precedence_over_the_name(tmp_path: Path) -> None:
    """Java clients send an empty name with an ID; from version 12 on, the name is then ignored (KIP-516)."""

    async def scenario(scene: Scene) -> None:
        topic_id = (await scene.make_topic("t"))["topic_id"]
        await scene.make_topic("u")
        for name in ("", "u", "missing"):
            asked = [{"name": name, "topic_id": topic_id}, {"name": name, "topic_id": UNKNOWN_ID}]
            answer = await scene.ask(METADATA, {"topics": asked, "allow_auto_topic_creation": True}, 12)
            rows = {row["topic_id"]: (row["name"], row["error_code"]) for row in answer["topics"]}
            assert rows == {topic_id: ("t", 0), UNKNOWN_ID: (None, 100)}
            assert [len(row["partitions"]) for row in answer["topics"] if row["name"] == "t"] == [1]
        assert "missing" not in await scene.metadata(), "a topic with an ID and a name is not created"
        answer = await scene.ask(METADATA, {"topics": [{"name": "u", "topic_id": topic_id}]}, 11)
        assert [row["name"] for row in answer["topics"]] == ["u"], "ids came with version 12"

    on_broker(tmp_path, scenario)


def test_authorized_operations_without_an_authorizer(tmp_path: Path) -> None:
    """If requested, all operations of the topic and the cluster are returned as a bit field (KIP-430)."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        all_of_topic = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
        all_of_cluster = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
        unasked = -(2**31)
        for asked in (True, False, True):
            body = {
                "topics": [by_name("t"), by_name("missing")],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": asked,
                "include_cluster_authorized_operations": asked,
            }
            for version in (8, 10, 12):
                answer = await scene.ask(METADATA, body, version)
                rows = {row["name"]: row["topic_authorized_operations"] for row in answer["topics"]}
                assert rows == dict.fromkeys(("t", "missing"), all_of_topic if asked else unasked)
                if version <= 10:
                    assert answer["cluster_authorized_operations"] == (all_of_cluster if asked else unasked)
            answer = await scene.ask(DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": asked})
            assert answer["cluster_authorized_operations"] == (all_of_cluster if asked else unasked)

    on_broker(tmp_path, scenario)


def test_metadata_creates_missing_topics_if_both_sides_allow(tmp_path: Path) -> None:
    """The first response has LEADER_NOT_AVAILABLE, a later one has the leader; internal topics are not created."""

    async def scenario(scene: Scene) -> None:
        assert (await scene.metadata("t"))["t"]["error_code"] == 3
        names = ["t", *(f"t{i}" for i in range(20))]
        first = await scene.metadata(*names, "a b", "__consumer_offsets", create=True)
        assert {first[name]["error_code"] for name in names} <= {0, 5}
        assert (first["a b"]["error_code"], first["__consumer_offsets"]["error_code"]) == (17, 3)
        await scene.until(lambda: set(names) <= set(scene.broker.metadata.topics), "the topics are created")
        again = await scene.metadata(*names, create=True)
        assert {row["error_code"] for row in again.values()} == {0}
        assert (await create(scene, topic("t")))["t"]["error_code"] == 36
        assert set(await scene.metadata()) == set(names)

    on_broker(tmp_path, scenario)


def test_automatic_topic_creations_are_bounded(tmp_path: Path) -> None:
    """Topics above the limit get LEADER_NOT_AVAILABLE and are created when the client retries."""

    async def scenario(scene: Scene) -> None:
        names = [f"t{number:02d}" for number in range(12)]
        first = await scene.metadata(*names, create=True)
        assert {row["error_code"] for row in first.values()} <= {0, 5}
        await scene.until(lambda: set(names[:5]) <= set(scene.broker.metadata.topics), "five topics are created")
        assert set(scene.broker.metadata.topics) == set(names[:5])
        while not set(names) <= set(scene.broker.metadata.topics):
            await scene.metadata(*names, create=True)

    on_broker(tmp_path, scenario, "kreplica.auto.create.topics.in.progress.max=5")


def test_automatic_topic_creation_can_be_disabled(tmp_path: Path) -> None:
    """With auto.create.topics.enable=false, a missing topic is not created."""

    async def scenario(scene: Scene) -> None:
        assert (await scene.metadata("t", create=True))["t"]["error_code"] == 3

    on_broker(tmp_path, scenario, "auto.create.topics.enable=false")
