"""A producer's transactions become visible completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from producer_scene import Scene
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.group.membership import GroupIdentity
from kreplica.client.producer import Producer
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    OutcomeUnknown,
    ProducerUnusable,
    RecordTooLarge,
    TransactionFailed,
)
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import CommittedOffset, parse_committed
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import OFFSET_FETCH

T0 = TopicPartition("t", 0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One broker."""
    scene = Scene()
    yield scene
    scene.close()


def committed_offsets(scene: Scene, group: str) -> dict[TopicPartition, CommittedOffset]:
    async def ask(connection: Any) -> dict[TopicPartition, CommittedOffset]:
        body = {"group_id": group, "topics": None, "groups": [{"group_id": group, "topics": None}]}
        response = await scene.cluster.request(connection, OFFSET_FETCH, body)
        return dict(parse_committed(response["groups"][0]["topics"], group))

    return scene.run(scene.cluster.at_coordinator(CoordinatorKind.GROUP, group, ask))


async def write(producer: Producer, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.send("t", value, partition=number % 2)


def test_committed_transaction_is_visible(scene: Scene) -> None:
    """At the commit, the records of all partitions become visible."""
    producer = scene.producer(transactional_id="x")
    for number in range(3):
        scene.run(producer.begin())
        sent = producer.send("t", b"%d" % number, partition=0)
        scene.run(producer.send("t", b"%d" % number, partition=1))
        scene.run(sent)
        assert len(scene.committed_values(0)) == number
        scene.run(producer.commit())
        assert scene.committed_values(0) == scene.committed_values(1) == [b"%d" % each for each in range(number + 1)]


def test_aborted_transaction_is_invisible(scene: Scene) -> None:
    """Unsent records fail, sent ones stay invisible, and the next transaction succeeds."""
    producer = scene.producer(transactional_id="x", linger_s=100.0)
    scene.run(producer.begin())
    scene.run(write(producer, b"a", b"b"))
    scene.run(producer.flush())
    late = producer.send("t", b"late", partition=3)
    scene.run(producer.abort())
    assert isinstance(scene.error(late), TransactionFailed)
    scene.run(producer.begin())
    scene.run(write(producer, b"c", b"d"))
    scene.run(producer.commit())
    assert (scene.committed_values(0), scene.committed_values(1), scene.values(3)) == ([b"c"], [b"d"], [])


def test_abort_with_batches_in_flight(scene: Scene) -> None:
    """The abort waits for the responses to the batches; all records stay invisible."""
    producer = scene.producer(transactional_id="x", batch_size=200)
    for _ in range(3):
        scene.run(producer.begin())
        for number in range(100):
            producer.send("t", b"%d" % number, partition=0).addErrback(lambda _: None)
        scene.brokers.run(0.003)
        scene.run(producer.abort())
    scene.run(producer.begin())
    scene.run(producer.send("t", b"seen", partition=0))
    scene.run(producer.commit())
    assert scene.committed_values(0) == [b"seen"]


def test_context_manager_commits_or_aborts(scene: Scene) -> None:
    """The context manager commits at its end, and aborts after an error."""
    producer = scene.producer(transactional_id="x")

    async def good() -> None:
        async with producer.transaction() as inside:
            inside.send("t", b"good", partition=0)

    async def bad() -> None:
        async with producer.transaction():
            await producer.send("t", b"bad", partition=0)
            raise RuntimeError("no")

    scene.run(good())
    assert isinstance(scene.error(bad()), RuntimeError)
    scene.run(good())
    assert scene.committed_values(0) == [b"good", b"good"]


def test_an_empty_transaction(scene: Scene) -> None:
    """The transaction needs no request to the coordinator."""
    producer = scene.producer(transactional_id="x")
    for end in (producer.commit, producer.abort, producer.commit):
        scene.run(producer.begin())
        scene.run(end())


def test_invalid_calls_are_refused(scene: Scene) -> None:
    producer = scene.producer(transactional_id="x")
    with pytest.raises(ValueError, match="call begin"):
        producer.send("t", b"")
    for call in (producer.commit, producer.abort, lambda: producer.send_offsets({T0: 1}, "g")):
        assert isinstance(scene.error(call()), ValueError)
    scene.run(producer.begin())
    assert "already" in str(scene.error(producer.begin()))
    assert "transactional_id" in str(scene.error(scene.producer().begin()))


def test_second_producer_fences_the_first(scene: Scene) -> None:
    """The first producer's open transaction is aborted, and its later operations fail."""
    old, new = scene.producer(transactional_id="x"), scene.producer(transactional_id="x")
    scene.run(old.begin())
    scene.run(old.send("t", b"old", partition=0))
    scene.run(new.begin())
    scene.run(new.send("t", b"new", partition=0))
    scene.run(new.commit())
    assert isinstance(scene.error(old.commit()), ProducerUnusable)
    assert isinstance(scene.error(old.send("t", b"more")), ProducerUnusable)
    assert isinstance(scene.error(old.abort()), ProducerUnusable)
    assert scene.committed_values(0) == [b"new"]


def test_records_of_a_fenced_producer_fail(scene: Scene) -> None:
    """A record sent by a fenced producer fails, and so do later operations."""
    old, new = scene.producer(transactional_id="x"), scene.producer(transactional_id="x")
    scene.run(old.begin())
    scene.run(old.send("t", b"old", partition=0))
    scene.run(new.begin())
    scene.error(old.send("t", b"more", partition=0))
    assert isinstance(scene.error(old.commit()), ProducerUnusable)
    scene.run(old.close())


def test_failed_record_fails_the_transaction(scene: Scene) -> None:
    """The transaction can only be aborted; the next one succeeds, even after a gap in the sequences."""
    scene.run(scene.brokers.client().change_settings("t", {"max.message.bytes": "400"}))
    producer = scene.producer(transactional_id="x")
    scene.run(producer.begin())
    scene.run(producer.send("t", b"fine", partition=0))
    assert isinstance(scene.error(producer.send("t", b"x" * 1000, partition=0)), RecordTooLarge)
    assert isinstance(scene.error(producer.send("t", b"more", partition=0)), TransactionFailed)
    assert isinstance(scene.error(producer.commit()), TransactionFailed)
    scene.run(producer.abort())
    scene.run(producer.begin())
    scene.run(producer.send("t", b"next", partition=0))
    scene.run(producer.commit())
    assert scene.committed_values(0) == [b"next"]


def test_a_record_without_a_partition_fails_the_transaction(scene: Scene) -> None:
    """If a record fails before it is added to a batch, the transaction cannot be committed."""
    producer = scene.producer(transactional_id="x", topic_timeout_s=0.5)
    scene.run(producer.begin())
    scene.run(producer.send("t", b"written", partition=0))
    missing = producer.send("missing", b"not written")
    assert isinstance(scene.error(missing), ClientError)
    assert isinstance(scene.error(producer.commit()), TransactionFailed)
    scene.run(producer.abort())
    scene.run(producer.begin())
    scene.run(producer.send("t", b"seen", partition=0))
    scene.run(producer.commit())
    assert scene.committed_values(0) == [b"seen"]


def test_offsets_belong_to_the_transaction(scene: Scene) -> None:
    """Offsets sent in a transaction are committed with it or not at all."""
    producer = scene.producer(transactional_id="x")
    scene.run(producer.begin())
    scene.run(producer.send("t", b"", partition=1))
    scene.run(producer.send_offsets({T0: CommittedOffset(5, metadata="five")}, "g"))
    scene.run(producer.commit())
    assert committed_offsets(scene, "g") == {T0: CommittedOffset(5, -1, "five")}
    scene.run(producer.begin())
    scene.run(producer.send_offsets({T0: 9}, "g"))
    scene.run(producer.abort())
    assert committed_offsets(scene, "g")[T0].offset == 5


def test_offsets_of_another_group_are_refused(scene: Scene) -> None:
    """If the group refuses the offsets, the transaction can only be aborted (KIP-447)."""
    producer = scene.producer(transactional_id="x")
    scene.run(producer.begin())
    error = scene.error(producer.send_offsets({T0: 5}, GroupIdentity("g", 3, "nobody")))
    assert isinstance(error, TransactionFailed)
    assert isinstance(error.__cause__, BrokerRefused)
    assert error.__cause__.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(scene.error(producer.commit()), TransactionFailed)
    scene.run(producer.abort())
    assert committed_offsets(scene, "g") == {}


def test_commit_without_a_response(scene: Scene) -> None:
    """The commit's outcome is unknown, and the producer is unusable; a new producer works."""
    cluster = scene.new_cluster(request_timeout_s=1.0, operation_timeout_s=3.0)
    producer = scene.producer(cluster=cluster, transactional_id="x")
    scene.run(producer.begin())
    scene.run(producer.send("t", b"maybe", partition=0))
    scene.brokers.simulation.network.isolate("application")
    assert isinstance(scene.error(producer.commit()), OutcomeUnknown)
    assert isinstance(scene.error(producer.begin()), OutcomeUnknown)
    scene.brokers.simulation.network.heal()
    scene.run(producer.close())
    scene.run(cluster.close())
    scene.run(scene.producer(transactional_id="x").begin())


def test_cancelled_commit(scene: Scene) -> None:
    """A commit cancelled before EndTxn leaves the transaction open; during EndTxn, its outcome is unknown."""
    producer = scene.producer(transactional_id="x", linger_s=0.0)
    scene.run(producer.begin())
    producer.send("t", b"x", partition=0)
    commit = Deferred.fromCoroutine(producer.commit())
    commit.cancel()
    assert isinstance(scene.error(commit), CancelledError)
    scene.run(producer.commit())
    assert scene.committed_values(0) == [b"x"]
    scene.run(producer.begin())
    scene.run(producer.send("t", b"y", partition=0))
    commit = Deferred.fromCoroutine(producer.commit())
    commit.cancel()
    assert isinstance(scene.error(commit), CancelledError)
    assert isinstance(scene.error(producer.begin()), OutcomeUnknown)


def test_close_aborts(scene: Scene) -> None:
    """The open transaction is aborted: it stays invisible, and consumers do not wait for it."""
    producer = scene.producer(transactional_id="x")
    scene.run(producer.begin())
    scene.run(producer.send("t", b"x", partition=0))
    scene.run(producer.close())
    scene.run(scene.producer().send("t", b"plain", partition=0))
    assert scene.committed_values(0) == [b"plain"]


def test_brokers_die_during_transactions() -> None:
    """Only committed records become visible, once and in order."""
    scene = Scene(brokers=3)
    producer = scene.producer(transactional_id="x", batch_size=200)
    expected: list[bytes] = []
    for number in range(12):
        victim = number % 3 + 1 if number % 2 else None
        scene.run(producer.begin())
        values = [b"%d-%d" % (number, each) for each in range(20)]
        for value in values:
            producer.send("t", value, partition=0).addErrback(lambda _: None)
        if victim is not None:
            scene.brokers.run(0.002 * number)
            scene.brokers.brokers[victim].kill()
        try:
            scene.run(producer.commit())
            expected += values
        except TransactionFailed:
            scene.run(producer.abort())
        if victim is not None:
            scene.run(scene.brokers.brokers[victim].start())
            scene.brokers.wait_in_sync("t", range(4))
    assert len(expected) >= 6 * 20
    assert scene.committed_values(0) == expected
    scene.close()
