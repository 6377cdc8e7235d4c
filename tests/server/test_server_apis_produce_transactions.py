"""Transactional Produce of older clients and of Kafka 4 (KIP-98, KIP-890)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transaction_checks import ask_until_served, begin

from kreplica.model import TopicPartition
from kreplica.server.produce import transactional_produce
from kreplica.wire import messages
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import iter_records
from tests.support.broker_scene import Scene, batch, on_broker, produce_body

OLD, ABORTABLE, ADDING = 10, 11, 12
"""Versions of Produce: the newest without KIP-890, with its first part, and with its second part."""

Row = dict[str, Any]


class Producer:
    """A transactional producer that sends each request explicitly."""

    def __init__(self, scene: Scene, identity: Row, version: int) -> None:
        self._scene = scene
        self.identity = identity
        self.version = version
        self.sequences: dict[int, int] = {}

    @classmethod
    async def create(cls, scene: Scene, transactional_id: str = "tx", version: int = ADDING) -> Producer:
        return cls(scene, await begin(scene, transactional_id), version)

    async def add(self, *partitions: int) -> None:
        body = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        body["v3_and_below_topics"] = [{"name": "t", "partitions": list(partitions)}]
        await ask_until_served(self._scene, messages.ADD_PARTITIONS_TO_TXN, body, 3)

    def body(self, value: bytes, partition: int = 0, sequence: int | None = None, **changes: Any) -> Row:
        if sequence is None:
            sequence = self.sequences.get(partition, 0)
            self.sequences[partition] = sequence + 1
        records = batch(
            value,
            transactional=True,
            producer_id=self.identity["producer_id"],
            producer_epoch=self.identity["producer_epoch"],
            base_sequence=sequence,
        )
        body = produce_body("t", records, partition=partition)
        return body | {"transactional_id": self.identity["transactional_id"]} | changes

    async def send(self, value: bytes, partition: int = 0, sequence: int | None = None) -> Row:
        """Send a batch, with retries while the error is retriable, and return its row in the response."""
        body = self.body(value, partition, sequence)
        for _ in range(200):
            answer = await self._scene.ask(messages.PRODUCE, body, self.version)
            row: Row = answer["responses"][0]["partition_responses"][0]
            if row["error_code"] not in (19, 51):
                return row
            await self._scene.sleep(0.02)
        raise AssertionError(row)

    async def end(self, *, committed: bool) -> None:
        version = 5 if self.version >= ADDING else 3
        body = self.identity | {"committed": committed}
        answer = await ask_until_served(self._scene, messages.END_TXN, body, version)
        assert answer["error_code"] == 0
        if version == 5:
            self.identity |= {"producer_epoch": answer["producer_epoch"], "producer_id": answer["producer_id"]}
            self.sequences = {}


async def committed_values(scene: Scene, partition: int = 0) -> tuple[list[str], int]:
    """Return the values that a reader of committed records sees after client-side filtering, and the last stable
    offset."""
    values: list[str] = []
    offset = 0
    while True:
        row = await scene.fetch("t", offset, partition=partition, isolation=1)
        assert row["error_code"] == 0
        aborted: set[int] = set()
        data = bytes(row["records"] or b"")
        waiting = sorted((each["first_offset"], each["producer_id"]) for each in row["aborted_transactions"] or ())
        for position, header in iter_headers(data, incomplete_last=True):
            offset = header.next_offset
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                records = iter_records(data[position : position + header.size])
                values += [bytes(record.value or b"").decode() for record in records]
        if not data:
            return values, row["last_stable_offset"]


async def committed_values_at(scene: Scene, end_offset: int, partition: int = 0) -> list[str]:
    """Return the values once the last stable offset is reached; markers are written after the producer's response."""
    for _ in range(300):
        values, stable = await committed_values(scene, partition)
        if stable == end_offset:
            return values
        await scene.sleep(0.02)
    raise AssertionError((values, stable))


@pytest.mark.parametrize("version", [OLD, ABORTABLE, ADDING])
def test_read_committed_sees_committed_transactions_only(tmp_path: Path, version: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        producer = await Producer.create(scene, version=version)

        async def transact(value: bytes, *, committed: bool) -> None:
            if version < ADDING:
                await producer.add(0)
            for number in range(2):
                row = await producer.send(value + b"%d" % number)
                assert row["error_code"] == 0, row
            await producer.end(committed=committed)

        await producer.add(0) if version < ADDING else None
        assert (await producer.send(b"open"))["error_code"] == 0
        assert await committed_values(scene) == ([], 0)
        await producer.end(committed=True)
        assert await committed_values_at(scene, 2) == ["open"]
        await transact(b"bad", committed=False)
        assert await committed_values_at(scene, 5) == ["open"]
        await transact(b"good", committed=True)
        assert await committed_values_at(scene, 8) == ["open", "good0", "good1"]

    on_broker(tmp_path, scenario)


@pytest.mark.parametrize(("version", "code"), [(OLD, 48), (ABORTABLE, 120)])
def test_partition_that_was_not_added_is_refused(tmp_path: Path, version: int, code: int) -> None:
    """A transaction that no coordinator would end is not opened; a client with KIP-890 gets an abortable error."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        producer = await Producer.create(scene, version=version)
        assert (await producer.send(b"x", sequence=0))["error_code"] == code
        await producer.add(1)
        assert (await producer.send(b"x", 1))["error_code"] == 0
        assert (await producer.send(b"x", 0, sequence=0))["error_code"] == code
        partition = scene.broker.partitions.led_partition(_key(0))
        assert partition.log.log_end_offset == 0
        assert len(partition.log.producers.verifications) == 0

    on_broker(tmp_path, scenario)


def test_batch_after_the_end_of_its_transaction_is_refused(tmp_path: Path) -> None:
    """A late batch is rejected and does not block readers, whether or not its producer's epoch was bumped."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        old = await Producer.create(scene, "old", OLD)
        await old.add(0)
        await old.send(b"a")
        await old.end(committed=True)
        await committed_values_at(scene, 2)
        assert (await old.send(b"late"))["error_code"] == 48
        new = await Producer.create(scene, "new")
        await new.send(b"b")
        late = new.body(b"late", sequence=1)
        await new.end(committed=True)
        await committed_values_at(scene, 4)
        answer = await scene.ask(messages.PRODUCE, late, ADDING)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 47
        assert await committed_values_at(scene, 4) == ["a", "b"]

    on_broker(tmp_path, scenario)


def test_batches_in_flight_stay_in_order(tmp_path: Path) -> None:
    """Five batches sent at once to a partition that is not in the transaction yet are all accepted, in order."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        producer = await Producer.create(scene)
        asked = [
            scene.connection.request(messages.PRODUCE, ADDING, producer.body(b"%d" % number), timeout_s=10)
            for number in range(5)
        ]
        rows = [(await each)["responses"][0]["partition_responses"][0] for each in asked]
        assert [(row["error_code"], row["base_offset"]) for row in rows] == [(0, number) for number in range(5)]
        await producer.end(committed=True)
        assert await committed_values_at(scene, 6) == ["0", "1", "2", "3", "4"]

    on_broker(tmp_path, scenario)


def test_batches_waiting_for_the_coordinator_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, a producer gets a retriable error; the batches that it sends again are in order."""
    monkeypatch.setattr(transactional_produce, "KEPT_BYTES_MAX", 1)

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        producer = await Producer.create(scene)
        asked = [
            scene.connection.request(messages.PRODUCE, ADDING, producer.body(b"%d" % number), timeout_s=10)
            for number in range(3)
        ]
        rows = [(await each)["responses"][0]["partition_responses"][0] for each in asked]
        assert [row["error_code"] for row in rows] == [0, 19, 19]
        for number in (1, 2):
            assert (await producer.send(b"%d" % number, sequence=number))["base_offset"] == number
        await producer.end(committed=True)
        assert await committed_values_at(scene, 4) == ["0", "1", "2"]

    on_broker(tmp_path, scenario)


def test_batches_behind_one_that_exceeded_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches after a rejected one are also rejected, even below the limit, because they would be out of order."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        producer = await Producer.create(scene)

        async def code(sequence: int) -> int:
            body = producer.body(b"%d" % sequence, sequence=sequence)
            answer = await scene.ask(messages.PRODUCE, body, ADDING)
            return int(answer["responses"][0]["partition_responses"][0]["error_code"])

        with monkeypatch.context() as full:
            full.setattr(transactional_produce, "KEPT_BYTES_MAX", 0)
            assert await code(0) == 19
        assert await code(1) == 19
        for sequence in (0, 1):
            assert (await producer.send(b"%d" % sequence, sequence=sequence))["base_offset"] == sequence
        await producer.end(committed=True)
        assert await committed_values_at(scene, 3) == ["0", "1"]

    on_broker(tmp_path, scenario)


def test_inconsistent_requests_are_refused(tmp_path: Path) -> None:
    """A request and its batches must agree on the transaction and the producer."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        producer = await Producer.create(scene)

        async def codes(body: Row) -> list[int]:
            answer = await scene.ask(messages.PRODUCE, body, ADDING)
            return [row["error_code"] for topic in answer["responses"] for row in topic["partition_responses"]]

        plain = produce_body("t", batch(b"v")) | {"transactional_id": "tx"}
        assert await codes(plain) == [87]
        assert await codes(producer.body(b"v", sequence=0, transactional_id=None)) == [87]
        assert await codes(producer.body(b"v", sequence=0, acks=2)) == [21]
        two = producer.body(b"v", sequence=0)
        other = Producer(scene, producer.identity | {"producer_id": 77}, ADDING).body(b"v", 1)
        two["topic_data"] += other["topic_data"]
        assert await codes(two) == [49, 49]
        unknown = Producer(scene, producer.identity | {"transactional_id": "nobody"}, ADDING)
        assert await codes(unknown.body(b"v")) == [49]
        damaged = producer.body(b"v", sequence=0)
        damaged["topic_data"][0]["partition_data"][0]["records"] = b"\x02" * 100
        assert (await codes(damaged))[0] in (2, 87)
        missing = producer.body(b"v", partition=9)
        assert await codes(missing) == [3]
        old = Producer(scene, producer.identity | {"producer_epoch": producer.identity["producer_epoch"] - 1}, ADDING)
        if producer.identity["producer_epoch"]:
            assert await codes(old.body(b"v")) == [47]
        assert scene.broker.partitions.led_partition(_key(0)).log.log_end_offset == 0

    on_broker(tmp_path, scenario)


def test_transaction_without_acknowledgements(tmp_path: Path) -> None:
    """With acks=0, no response is sent and the records are stored; an error closes the connection."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        producer = await Producer.create(scene)
        other = await scene.connect()
        await other.request(messages.PRODUCE, ADDING, producer.body(b"v", acks=0), expects_response=False)
        partition = scene.broker.partitions.led_partition(_key(0))
        await scene.until(lambda: partition.log.log_end_offset == 1, "it is in the log")
        stranger = Producer(scene, producer.identity | {"transactional_id": "nobody", "producer_id": 77}, ADDING)
        await other.request(messages.PRODUCE, ADDING, stranger.body(b"v", acks=0), expects_response=False)
        await scene.until(lambda: other.closed, "the connection is closed")

    on_broker(tmp_path, scenario)


def test_verification_can_be_disabled(tmp_path: Path) -> None:
    """Without verification, batches are accepted as if verified, except from clients that rely on the broker to add
    partitions."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t", 2)
        old = await Producer.create(scene, "old", OLD)
        assert (await old.send(b"x"))["error_code"] == 0
        new = await Producer.create(scene, "new")
        assert (await new.send(b"x", 1))["error_code"] == 0
        producers = scene.broker.partitions.led_partition(_key(1)).log.producers
        assert producers.is_in_transaction(new.identity["producer_id"], 0)
        await new.end(committed=False)
        assert await committed_values_at(scene, 2, partition=1) == []

    on_broker(tmp_path, scenario, "transaction.partition.verification.enable=false")


def _key(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)
