"""The controller with a real broker and the embedded coordinator, while other programs change znodes."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

from kreplica.cluster import documents, znodes
from kreplica.model import TopicAssignment
from kreplica.wire.messages import CREATE_TOPICS
from kreplica.zookeeper import Create
from tests.support.broker_scene import Scene, batch, create_body, on_broker

TOPIC_ID = UUID("12345678-1234-4234-8234-123456789abc")
LED_SECONDS_MAX = 2.0
"""Target time within which all partitions of a topic of 1,000 partitions have leaders."""


def assignment(name: str, partitions: int = 1, topic_id: UUID = TOPIC_ID) -> bytes:
    return documents.encode_topic(TopicAssignment(name, topic_id, dict.fromkeys(range(partitions), (1,))))


async def led(scene: Scene, name: str, partitions: int = 1) -> None:
    """Wait until the broker leads this number of partitions of a topic."""

    def is_led() -> bool:
        topic = scene.broker.metadata.topic(name)
        return topic is not None and [p.leader for p in topic.partitions.values()] == [1] * partitions

    await scene.until(is_led, f"{name} has {partitions} leaders")


async def gone(scene: Scene, name: str) -> None:
    """Wait until nothing of a topic is left in the metadata, on disk and in ZooKeeper."""
    await scene.until(lambda: name not in scene.broker.metadata.topics, f"{name} is not in the metadata")
    await scene.until(lambda: not any(key.topic == name for key in scene.broker.directories.logs), "no log is left")
    # The controller removes the request last.
    for path in (znodes.delete_topic_path(name), znodes.topic_path(name), znodes.config_path("topics", name)):
        deadline = scene.reactor.seconds() + 10
        while await scene.zookeeper.exists(path) is not None:
            assert scene.reactor.seconds() < deadline, path
            await scene.sleep(0.002)


async def state(scene: Scene, name: str, partition: int = 0) -> dict[str, object]:
    data, _ = await scene.zookeeper.get_data(znodes.partition_state_path(name, partition))
    found: dict[str, object] = json.loads(data)
    return found


async def epoch(scene: Scene) -> int:
    data, _ = await scene.zookeeper.get_data(znodes.CONTROLLER_EPOCH)
    return documents.decode_controller_epoch(data)


async def is_controller(scene: Scene, at_least: int) -> None:
    """Wait until the broker is controller in this epoch or a later one, and has processed its own commands."""

    def is_ready() -> bool:
        context = scene.broker.controller.context
        return (
            context is not None
            and context.controller_epoch >= at_least
            and scene.broker.controller.queue.idle
            and scene.broker.fence.controller_epoch >= at_least
        )

    await scene.until(is_ready, f"controller in epoch {at_least}")


# --- topics by znode --------------------------------------------------------------------------------------------------


def test_a_topic_made_by_writing_its_znode_is_served(tmp_path: Path) -> None:
    """Kafka's tools create topics in this way; a topic without an id is assigned one and keeps it."""

    async def story(scene: Scene) -> None:
        await scene.zookeeper.create(znodes.topic_path("t"), assignment("t", 2))
        await led(scene, "t", 2)
        assert (await scene.produce("t", batch(b"v"), partition=1))["base_offset"] == 0
        assert await state(scene, "t") == {
            "controller_epoch": 1,
            "leader": 1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1],
        }
        assert scene.broker.metadata.topic_id("t") == TOPIC_ID
        await scene.zookeeper.create(znodes.topic_path("old"), b'{"version":1,"partitions":{"0":[1]}}')
        await led(scene, "old")
        data, _ = await scene.zookeeper.get_data(znodes.topic_path("old"))
        assert documents.decode_topic("old", data).topic_id == scene.broker.metadata.topic_id("old") != UUID(int=0)

    on_broker(tmp_path, story)


def test_partitions_added_by_rewriting_the_znode_are_led(tmp_path: Path) -> None:
    """Existing partitions are unchanged, and a rewrite that drops the topic's id does not change it."""

    async def story(scene: Scene) -> None:
        await scene.make_topic("t")
        topic_id = scene.broker.metadata.topic_id("t")
        await scene.produce("t", batch(b"v"))
        await scene.zookeeper.set_data(znodes.topic_path("t"), b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}')
        await led(scene, "t", 3)
        assert scene.broker.metadata.topic_id("t") == topic_id
        assert (await scene.produce("t", batch(b"v")))["base_offset"] == 1
        assert (await scene.produce("t", batch(b"v"), partition=2))["base_offset"] == 0
        assert (await state(scene, "t"))["leader_epoch"] == 0

    on_broker(tmp_path, story)


def test_deletion_requested_by_znode(tmp_path: Path) -> None:
    """The files, metadata, znodes, configuration and request are removed; so is a request for an unknown topic."""

    async def story(scene: Scene) -> None:
        await scene.make_topic("t", 5, retention_ms="1000")
        await scene.zookeeper.create(znodes.delete_topic_path("t"))
        await gone(scene, "t")
        await scene.zookeeper.create(znodes.delete_topic_path("nobody"))
        await gone(scene, "nobody")

    on_broker(tmp_path, story)


def test_an_interrupted_deletion_is_finished_by_the_next_controller(tmp_path: Path) -> None:
    """A deletion is finished from any intermediate state."""

    async def before(scene: Scene) -> None:
        for name in ("states-gone", "asked-only"):
            await scene.make_topic(name, 2, retention_ms="1000")
        zookeeper = scene.zookeeper
        await scene.broker.controller.stop()
        for name in ("states-gone", "asked-only"):
            await zookeeper.create(znodes.delete_topic_path(name))
        for partition in range(2):
            await zookeeper.delete(znodes.partition_state_path("states-gone", partition))
            await zookeeper.delete(znodes.partition_path("states-gone", partition))
        await zookeeper.delete(znodes.partitions_path("states-gone"))

    async def after(scene: Scene) -> None:
        for name in ("states-gone", "asked-only"):
            await gone(scene, name)
        await scene.make_topic("states-gone", 3)

    on_broker(tmp_path, before)
    on_broker(tmp_path, after)


def test_an_unreadable_topic_is_ignored(tmp_path: Path) -> None:
    """The error is logged once and does not affect other topics; the topic works after a repair and can be deleted."""

    async def story(scene: Scene) -> None:
        for name in ("bad", "worse"):
            await scene.zookeeper.create(znodes.topic_path(name), b"{not json")
        for i in range(5):
            await scene.make_topic(f"t{i}")
        logged_events = [e for e in scene.logged if "unreadable" in (e.get("log_format") or "")]
        assert len(logged_events) == 2, "one line for each"
        assert (await scene.zookeeper.get_data(znodes.topic_path("bad")))[0] == b"{not json"
        await scene.zookeeper.set_data(znodes.topic_path("bad"), assignment("bad"))
        await led(scene, "bad")
        await scene.zookeeper.create(znodes.delete_topic_path("worse"))
        await gone(scene, "worse")

    on_broker(tmp_path, story, errors_logged=True)


def test_unreadable_znodes_do_not_prevent_a_takeover(tmp_path: Path) -> None:
    """A damaged state, topic or registration affects nothing else."""

    async def before(scene: Scene) -> None:
        await scene.make_topic("good")
        await scene.make_topic("bad")
        await scene.zookeeper.set_data(znodes.partition_state_path("bad", 0), b"?")
        await scene.zookeeper.create(znodes.topic_path("worse"), b"[]")
        await scene.zookeeper.create(znodes.broker_path(77), b"nobody")

    async def after(scene: Scene) -> None:
        await led(scene, "good")
        assert (await scene.produce("good", batch(b"v")))["error_code"] == 0
        assert (await scene.metadata("bad"))["bad"]["partitions"][0]["error_code"] == 5
        assert (await scene.zookeeper.get_data(znodes.partition_state_path("bad", 0)))[0] == b"?"

    on_broker(tmp_path, before, errors_logged=True)
    on_broker(tmp_path, after, errors_logged=True)


# --- election ---------------------------------------------------------------------------------------------------------


def test_a_deleted_controller_znode_means_a_new_election(tmp_path: Path) -> None:
    """Operators move the controller in this way; the next term has a higher epoch, and topics are unchanged."""

    async def story(scene: Scene) -> None:
        await scene.make_topic("t")
        first = await epoch(scene)
        for i in range(1, 4):
            await scene.zookeeper.delete(znodes.CONTROLLER)
            await is_controller(scene, first + i)
            assert await epoch(scene) == first + i
        assert (await state(scene, "t"))["leader_epoch"] == 0, "the leader was live all the time"
        await scene.make_topic("u")

    on_broker(tmp_path, story)


def test_a_controller_znode_with_another_id_makes_its_owner_resign(tmp_path: Path) -> None:
    """Operators can also move the controller by overwriting the znode."""

    async def story(scene: Scene) -> None:
        first = await epoch(scene)
        await scene.zookeeper.set_data(znodes.CONTROLLER, documents.encode_controller(99, 0))
        await is_controller(scene, first + 1)
        data, _ = await scene.zookeeper.get_data(znodes.CONTROLLER)
        assert documents.decode_controller(data) == 1
        await scene.make_topic("t")

    on_broker(tmp_path, story)


def test_a_controller_with_an_old_epoch_writes_nothing(tmp_path: Path) -> None:
    """The controller's next write fails because of the guard; it resigns, is elected with a higher epoch, and then does
    the work."""

    async def story(scene: Scene) -> None:
        # A broker serves clients before its takeover has ended, and the last write of the takeover would already fail
        # because of the guard: then no broker would be controller when the topic is created.
        await is_controller(scene, 1)
        first = await epoch(scene)
        await scene.zookeeper.set_data(znodes.CONTROLLER_EPOCH, documents.encode_controller_epoch(first + 5))
        row = await scene.make_topic("t")
        assert row["error_code"] == 0
        assert (await state(scene, "t"))["controller_epoch"] == first + 6
        assert await epoch(scene) == first + 6
        assert any("resigns" in (event.get("log_format") or "") for event in scene.logged)

    on_broker(tmp_path, story)


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_topics_ids_and_leaders(tmp_path: Path) -> None:
    """Every partition has a leader in the next epoch before the broker reports that it is ready."""
    ids: dict[str, UUID] = {}

    async def before(scene: Scene) -> None:
        for name in ("t", "u"):
            ids[name] = (await scene.make_topic(name, 20))["topic_id"]
            await scene.produce(name, batch(b"v"), partition=7)

    async def after(scene: Scene) -> None:
        for name, topic in (await scene.metadata()).items():
            assert topic["topic_id"] == ids[name]
            assert {(p["leader_id"], p["leader_epoch"], p["error_code"]) for p in topic["partitions"]} == {(1, 1, 0)}
            assert len(topic["partitions"]) == 20
            assert (await scene.produce(name, batch(b"v"), partition=7))["base_offset"] == 1
        assert await epoch(scene) == 2

    on_broker(tmp_path, before)
    on_broker(tmp_path, after)


def test_replicas_on_a_dead_broker_are_offline(tmp_path: Path) -> None:
    """A partition whose only replica is dead has no leader until the broker is back; other topics are served."""

    async def story(scene: Scene) -> None:
        body = create_body("t", -1, factor=-1)
        body["topics"][0]["assignments"] = [{"partition_index": i, "broker_ids": [i + 1]} for i in range(2)]
        assert (await scene.ask(CREATE_TOPICS, body))["topics"][0]["error_code"] == 0
        await scene.standalone.brokers[1].stop()
        metadata = scene.broker.metadata
        await scene.until(lambda: metadata.topics["t"].partitions[1].leader == -1, "broker 2 is considered dead")
        rows = (await scene.metadata("t"))["t"]["partitions"]
        assert [(p["leader_id"], p["error_code"], p["offline_replicas"]) for p in rows] == [(1, 0, []), (-1, 5, [2])]
        assert (await state(scene, "t", 1)) | {"leader_epoch": 1} == {
            "controller_epoch": 1,
            "leader": -1,
            "version": 1,
            "leader_epoch": 1,
            "isr": [2],
        }
        assert (await scene.produce("t", batch(b"v")))["error_code"] == 0

    async def after(scene: Scene) -> None:
        await scene.until(lambda: scene.broker.metadata.topics["t"].partitions[1].leader == 2, "broker 2 leads again")

    on_broker(tmp_path, story, brokers=2)
    on_broker(tmp_path, after, brokers=2)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_a_thousand_partitions_are_led_in_seconds(tmp_path: Path) -> None:
    """The leaders of many partitions are elected, written and sent together."""

    async def story(scene: Scene) -> None:
        started = scene.reactor.seconds()
        await scene.make_topic("t", 1000)
        taken = scene.reactor.seconds() - started
        print(f"1,000 partitions led in {taken:.2f} s")
        assert taken < 4 * LED_SECONDS_MAX, "far above the target, for a busy machine"
        started = scene.reactor.seconds()
        many = [Create(znodes.topic_path(f"m{i}"), assignment(f"m{i}", 10, UUID(int=i + 1000))) for i in range(30)]
        await scene.zookeeper.multi(many)
        for i in range(30):
            await led(scene, f"m{i}", 10)
        print(f"30 topics of 10 partitions led in {scene.reactor.seconds() - started:.2f} s")

    on_broker(tmp_path, story)
