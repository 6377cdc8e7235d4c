"""Delayed delivery by header: no record is early, lost or duplicated, whichever broker fails."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import build_batch
from kreplica.wire.interceptor_notes import Note, build_notes
from kreplica.wire.records import Record

TOPIC = "reminders"
SETTINGS = ("kreplica.produce.interceptors=deliver-at", f"kreplica.plugin.deliver-at.topics={TOPIC}")


NOTE_KEY = b"\0\0kr"


class Scene:
    def __init__(self, seed: int, *, brokers: int, configs: dict[str, str] | None = None) -> None:
        self.cluster = SimulatedCluster(seed, brokers=brokers, overrides=SETTINGS)
        self.cluster.start()
        client = self.cluster.client()
        replication = {"replication_factor": brokers}
        self.cluster.run_until(client.create_topic(TOPIC, partitions=1, configs=configs or {}, **replication))
        self.cluster.wait_in_sync(TOPIC, [0])
        self.client = self.cluster.leader_client(TOPIC, 0, name="app")

    @property
    def now_ms(self) -> int:
        return self.cluster.simulation.host("app").runtime.wall_clock_ms()

    def produce(self, *records: tuple[str, int | None], **options: int) -> int:
        """Produce a batch.

        :param records: (value, seconds until the delivery; None for no header).
        """
        rows = []
        for value, delay_s in records:
            due = () if delay_s is None else (("deliver-at", str(self.now_ms + delay_s * 1000).encode()),)
            rows.append(Record(-1, self.now_ms, None, value.encode(), due))
        batch = build_batch(rows, **options)
        return self.cluster.run_until(self.client.produce(TOPIC, 0, batch))

    def records(self) -> list[Record]:
        """Return the records that a consumer sees, which are those without control records."""
        records = self.cluster.run_until(self.client.read_all(TOPIC, 0))
        return [record for record in records if record.key != NOTE_KEY]

    def seen(self) -> list[str]:
        return [record.value.decode() for record in self.records()]

    @property
    def leader(self) -> int:
        return self.cluster.leader_of(TOPIC, 0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(7, brokers=3, configs={"min.insync.replicas": "2"})
    yield scene
    scene.cluster.stop()


def test_record_appears_at_its_time(scene):
    """Records of a batch without a time appear at once; the others appear one by one, in order of their times."""
    scene.produce(("now", None), ("in a minute", 60), ("in ten seconds", 10), ("long ago", -5))
    assert scene.seen() == ["now", "long ago"]
    scene.cluster.run(9)
    assert scene.seen() == ["now", "long ago"]
    scene.cluster.run(2)
    assert scene.seen() == ["now", "long ago", "in ten seconds"]
    scene.cluster.run(60)
    assert scene.seen() == ["now", "long ago", "in ten seconds", "in a minute"]


def test_batch_without_remaining_records(scene):
    """If all records of a batch are delayed, later batches keep their offsets, and the records keys and headers."""
    scene.produce(("later", 5))
    scene.produce(("now", None))
    scene.cluster.run(10)
    records = scene.records()
    assert [record.value for record in records] == [b"now", b"later"]
    names = [name for name, _ in records[1].headers]
    assert names == ["deliver-at", "held-at"]


@pytest.mark.parametrize("seed", range(1, 7))
def test_leader_dies_at_any_moment(seed):
    """Whenever the leader dies, each acknowledged record is delivered once, by the next leader if necessary."""
    scene = Scene(seed, brokers=3, configs={"min.insync.replicas": "2"})
    expected = []
    for number in range(6):
        expected += [f"{number}-now", f"{number}-later"]
        scene.produce((f"{number}-now", None), (f"{number}-later", 10 + number))
        scene.cluster.run(scene.cluster.simulation.random.random())
    scene.cluster.run(4 + 1.3 * seed)  # from before the first delivery to between deliveries
    dead = scene.leader
    scene.cluster.brokers[dead].power_loss()
    scene.cluster.run(25)
    assert scene.leader != dead
    scene.cluster.run_until(scene.cluster.brokers[dead].start())
    scene.cluster.run(30)
    assert sorted(scene.seen()) == sorted(expected)
    scene.cluster.brokers[scene.leader].kill()
    scene.cluster.run(40)
    assert sorted(scene.seen()) == sorted(expected)
    scene.cluster.stop()


def test_cluster_was_down_at_the_delivery_time(scene):
    """If no broker was up at the delivery time, the record is delivered as soon as a broker leads again."""
    scene.produce(("while no broker was up", 30))
    for machine in scene.cluster.brokers.values():
        machine.kill()
    scene.cluster.run(60)
    starts = [machine.start() for machine in scene.cluster.brokers.values()]
    for each in starts:
        scene.cluster.run_until(each)
    scene.cluster.run(30)
    assert scene.seen() == ["while no broker was up"]


def test_retry_is_delayed_once(scene):
    """A retry from an idempotent producer gets the result of the first attempt, and the record is delivered once."""
    options = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 0}
    first = scene.produce(("now", None), ("later", 5), **options)
    assert scene.produce(("now", None), ("later", 5), **options) == first
    scene.produce(("next", None), **{**options, "base_sequence": 2})
    scene.cluster.run(10)
    assert scene.seen() == ["now", "next", "later"]


@pytest.mark.parametrize("text", [b"tomorrow", b"-1", b"", b"1e3"])
def test_invalid_time(scene, text):
    """A batch with an invalid time is refused, and the error names the record."""
    batch = build_batch([Record(-1, 1, None, b"v", ()), Record(-1, 1, None, b"w", (("deliver-at", text),))])
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        scene.cluster.run_until(scene.client.produce(TOPIC, 0, batch))
    assert scene.seen() == []


def test_time_beyond_the_retention():
    """Records that retention would delete before their delivery time are refused."""
    scene = Scene(3, brokers=1, configs={"retention.ms": "60000"})
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        scene.produce(("in two minutes", 120))
    scene.produce(("soon", 30))
    scene.cluster.stop()


def test_client_cannot_mark_a_record_as_delivered(scene):
    """A ``held-at`` header from a client is removed, and cancels no delivery after a failover."""
    offset = scene.produce(("later", 40))
    forged = tuple(("held-at", b"%d.0" % guess) for guess in range(offset - 1, offset + 2))
    for header in forged:
        batch = build_batch([Record(-1, 1, None, b"forged", (header,))])
        scene.cluster.run_until(scene.client.produce(TOPIC, 0, batch))
    scene.cluster.brokers[scene.leader].kill()
    scene.cluster.run(70)
    assert scene.seen() == ["forged", "forged", "forged", "later"]
    records = scene.records()
    assert records[0].headers == ()


def test_compacted_topics_delay_nothing():
    """Delayed records are refused in compacted topics, because the log cleaner would delete the plugin's notes."""
    scene = Scene(5, brokers=1, configs={"cleanup.policy": "compact"})
    batch = build_batch([Record(-1, scene.now_ms, b"k", b"v", (("deliver-at", str(scene.now_ms + 9999).encode()),))])
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        scene.cluster.run_until(scene.client.produce(TOPIC, 0, batch))
    scene.cluster.stop()


def test_note_without_its_batch(scene):
    """The next leader ignores a note whose batch is missing and was never acknowledged, and delivers the retry."""
    leader = scene.cluster.brokers[scene.leader].program
    partition = leader.partitions.get(TopicPartition(TOPIC, 0))
    due_ms = scene.now_ms + 40_000
    note = Note("deliver-at", json.dumps([[due_ms, 1, None, base64.b64encode(b"twice").decode()]]).encode())
    partition.append_own(build_notes([note], 12345, scene.now_ms), scene.now_ms)
    scene.produce(("now", None))
    scene.produce(("beside", None), ("once", 40))
    scene.cluster.brokers[scene.leader].kill()
    scene.cluster.run(80)
    assert scene.seen() == ["now", "beside", "once"]


def test_notes_of_other_plugins_are_ignored(scene):
    leader = scene.cluster.brokers[scene.leader].program
    partition = leader.partitions.get(TopicPartition(TOPIC, 0))
    partition.append_own(build_notes([Note("another", b"not JSON")], None, scene.now_ms), scene.now_ms)
    scene.produce(("later", 40))
    scene.cluster.brokers[scene.leader].kill()
    scene.cluster.run(80)
    assert scene.seen() == ["later"]
