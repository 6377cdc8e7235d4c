"""Requests of the blocking producer, and the effect of responses."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peer_murmur2
from scripted_brokers import Request, ScriptedBrokers, produce_response, produced_batches

from kreplica.blocking import Codec, Producer, ProducerOptions
from kreplica.blocking.connection import Connection
from kreplica.client_core.errors import (
    DeliveryFailed,
    GaveUp,
    OutcomeUnknown,
    ProducerUnusable,
    RecordTooLarge,
    TransactionFailed,
)
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import check_batch
from kreplica.wire.messages import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
)
from kreplica.wire.partitioning import murmur2, partition_of_key
from kreplica.wire.records import Record, iter_records

OK = produce_response
ONE_EACH: dict[str, Any] = {"linger_s": 0.0}
"""Options that send each record in its own batch."""


def refuse(code: ErrorCode) -> Any:
    return partial(produce_response, error=code)


def producer_id_response(request: Request) -> dict[str, Any]:
    return {"throttle_time_ms": 0, "error_code": 0, "producer_id": 77, "producer_epoch": 0}


def scripted(brokers: int = 1, leaders: tuple[int, ...] = (1,)) -> ScriptedBrokers:
    made = ScriptedBrokers(brokers, leaders)
    for broker in made.brokers.values():
        broker.always(INIT_PRODUCER_ID, producer_id_response)
        broker.always(PRODUCE, OK)
    return made


def sent(brokers: ScriptedBrokers, broker: int = 1) -> list[tuple[int, int, int]]:
    """Return (partition, epoch, sequence) of each batch in the order in which they are received."""
    return [
        (partition, header.producer_epoch, header.base_sequence)
        for request in brokers[broker].requests_to(PRODUCE)
        for partition, header in produced_batches(request)
    ]


def values(brokers: ScriptedBrokers, broker: int = 1) -> list[bytes | None]:
    rows = [
        row
        for request in brokers[broker].requests_to(PRODUCE)
        for row in request.body["topic_data"][0]["partition_data"]
    ]
    return [record.value for row in rows for record in iter_records(row["records"])]


# --- batches ---


def test_records_are_collected_into_batches() -> None:
    """Records of one partition within the linger time are one batch, in order."""
    brokers = scripted()
    with Producer(brokers.cluster()) as producer:
        deliveries = [
            producer.send("t", b"v%d" % number, key=b"k", headers=(("h", None),), partition=0, timestamp_ms=5 + number)
            for number in range(3)
        ]
        assert not deliveries[0].is_settled
        with pytest.raises(ValueError, match="flush"):
            _ = deliveries[0].offset
    (request,) = brokers[1].requests_to(PRODUCE)
    records = list(iter_records(request.body["topic_data"][0]["partition_data"][0]["records"]))
    assert [tuple(record) for record in records] == [
        (number, 5 + number, b"k", b"v%d" % number, (("h", None),)) for number in range(3)
    ]
    assert [delivery.offset for delivery in deliveries] == [0, 1, 2]
    assert producer.written == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_valid(codec: Codec) -> None:
    """For each codec, the header, sequence numbers and CRC of the batch are correct."""
    brokers = scripted()
    with Producer(brokers.cluster(), ProducerOptions(codec=codec)) as producer:
        for number in range(100):
            producer.send("t", b"value %d" % number, partition=0)
    (request,) = brokers[1].requests_to(PRODUCE)
    header = check_batch(request.body["topic_data"][0]["partition_data"][0]["records"])
    assert (header.codec, header.record_count, header.producer_id, header.base_sequence) == (codec, 100, 77, 0)


def test_full_batch_is_sent_at_once() -> None:
    """Batches are bounded in bytes; sequences continue from batch to batch."""
    brokers = scripted()
    with Producer(brokers.cluster(), ProducerOptions(batch_size=1000, linger_s=1000)) as producer:
        for _ in range(30):
            producer.send("t", bytes(100), partition=0)
        producer.poll()
        assert 2 <= len(brokers[1].requests_to(PRODUCE)) <= 5
    sequences = [sequence for _, _, sequence in sent(brokers)]
    assert sequences == sorted(set(sequences))
    assert (
        sum(
            header.record_count
            for request in brokers[1].requests_to(PRODUCE)
            for _, header in produced_batches(request)
        )
        == 30
    )


def test_encoded_batches_keep_their_order() -> None:
    """Encoded batches are numbered with the others, after earlier records, and count towards the memory limit."""
    brokers = scripted()
    with brokers.cluster() as cluster, Producer(cluster, ProducerOptions(memory_size_max=1000)) as producer:
        producer.send("t", b"one", partition=0)
        given = build_batch([Record(offset, 5, None, value) for offset, value in enumerate((b"two", b"three"))])
        delivery = producer.send_batch(TopicPartition("t", 0), bytearray(given), 2)
        producer.send("t", b"four", partition=0)
        producer.flush()
        assert (producer.written, delivery.offset >= 0) == (4, True)
        with pytest.raises(RecordTooLarge):
            producer.send_batch(TopicPartition("t", 0), bytearray(1001), 1)
    assert values(brokers) == [b"one", b"two", b"three", b"four"]
    assert [sequence for _, _, sequence in sent(brokers)] == [0, 1, 3]


def test_buffered_bytes_are_bounded() -> None:
    """With a slow broker, ``send`` waits, and the producer buffers at most the limit."""
    brokers = scripted()
    brokers[1].always(PRODUCE, lambda request: request.connection.send_later(1, request.response_bytes(OK(request))))
    options = ProducerOptions(batch_size=1000, memory_size_max=3000, linger_s=1000)
    with Producer(brokers.cluster(), options) as producer:
        for _ in range(50):
            producer.send("t", bytes(500), partition=0)
            assert producer._buffered_bytes <= 3000 + 600
        with pytest.raises(RecordTooLarge):
            producer.send("t", bytes(3000), partition=0)
    assert producer.written == 50


def test_request_has_all_batches_for_one_leader() -> None:
    """Several partitions of one leader share a request; each leader has its own."""
    brokers = scripted(2, (1, 2, 1))
    with Producer(brokers.cluster()) as producer:
        for partition in range(3):
            producer.send("t", b"v", partition=partition)
    assert [[index for index, _ in produced_batches(request)] for request in brokers[1].requests_to(PRODUCE)] == [
        [0, 2]
    ]
    assert [[index for index, _ in produced_batches(request)] for request in brokers[2].requests_to(PRODUCE)] == [[1]]


# --- partitions ---


@given(st.binary(max_size=70))
def test_keys_are_hashed_as_in_kafkas_clients(key: bytes) -> None:
    """Keys of any length have the same hash as in kafka-python."""
    assert struct.pack(">I", murmur2(key)) == struct.pack(">I", peer_murmur2(key) & 0xFFFFFFFF)
    assert 0 <= partition_of_key(key, 7) < 7


def test_records_with_a_key_stay_together() -> None:
    brokers = scripted(1, (1, 1, 1, 1))
    with Producer(brokers.cluster()) as producer:
        for number in range(40):
            producer.send("t", b"v", key=b"key-%d" % (number % 4))
    for request in brokers[1].requests_to(PRODUCE):
        for row in request.body["topic_data"][0]["partition_data"]:
            for record in iter_records(row["records"]):
                assert record.key is not None
                assert partition_of_key(record.key, 4) == row["index"]


def test_records_without_a_key_fill_one_partition_at_a_time() -> None:
    """Records without a key fill one batch after another, and use all partitions that have a leader."""
    brokers = scripted(1, (1, 1, -1, 1))
    with Producer(brokers.cluster(), ProducerOptions(batch_size=500, linger_s=1000)) as producer:
        for number in range(60):
            producer.send("t", b"%0100d" % number)
    counts = [
        (index, header.record_count)
        for request in brokers[1].requests_to(PRODUCE)
        for index, header in produced_batches(request)
    ]
    assert {index for index, _ in counts} == {0, 1, 3}
    assert max(count for _, count in counts) > 1


def test_missing_partition() -> None:
    """``send`` raises the error for a missing partition."""
    producer = Producer(scripted().cluster())
    with pytest.raises(GaveUp, match="partition t-9"):
        producer.send("t", b"v", partition=9)


# --- retries ---


def test_moved_leader_gets_the_same_batch() -> None:
    """The batch is sent again with the same sequence numbers, so that the new leader detects a duplicate."""
    brokers = scripted(2, (1,))

    def moved(request: Request) -> dict[str, Any]:
        brokers.move(0, 2)
        return produce_response(request, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    brokers[1].then(PRODUCE, moved)
    with Producer(brokers.cluster()) as producer:
        delivery = producer.send("t", b"v", partition=0)
    assert sent(brokers, 1) == sent(brokers, 2) == [(0, 0, 0)]
    assert delivery.offset == 0


def test_connection_lost_within_a_response() -> None:
    """Unacknowledged batches are sent again with the same sequence numbers, in order, followed by the next ones."""
    brokers = scripted()

    def half(request: Request) -> None:
        request.connection.send(request.response_bytes(OK(request))[:7])
        request.connection.close()

    brokers[1].then(PRODUCE, half)
    with Producer(brokers.cluster(), ProducerOptions(**ONE_EACH)) as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0)
    assert producer.written == 4
    numbers = sent(brokers)
    assert numbers[0] == (0, 0, 0)
    again = numbers[numbers.index((0, 0, 0), 1) :]
    assert again == [(0, 0, sequence) for sequence in range(4)]


def test_duplicate_after_a_retry_is_a_success() -> None:
    """The leader reports a duplicate; the record was written once, at an unknown offset."""
    brokers = scripted()
    brokers[1].then(PRODUCE, lambda request: request.connection.close(), refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    with Producer(brokers.cluster()) as producer:
        delivery = producer.send("t", b"v", partition=0)
    assert delivery.is_settled
    assert delivery.error is None
    assert delivery.offset == -1
    assert producer.written == 1


def test_too_few_replicas_are_retried() -> None:
    """A batch is retried with its numbers until its delivery timeout."""
    brokers = scripted()
    brokers[1].then(PRODUCE, *[refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 5)
    with Producer(brokers.cluster()) as producer:
        producer.send("t", b"v", partition=0)
    assert sent(brokers) == [(0, 0, 0)] * 6


def test_delivery_timeout_after_a_request_is_unknown() -> None:
    """After a delivery timeout, the error says that the record may be written, and that a retry may duplicate it."""
    brokers = scripted()
    brokers[1].always(PRODUCE, refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    producer = Producer(brokers.cluster(), ProducerOptions(delivery_timeout_s=10))
    delivery = producer.send("t", b"v", partition=0)
    with pytest.raises(DeliveryFailed, match="1 records were not delivered"):
        producer.flush()
    assert isinstance(delivery.error, OutcomeUnknown)
    assert not delivery.error.retriable
    assert 1009 < brokers.now_s < 1015


def test_unsent_record_fails_as_not_written() -> None:
    """Without a leader the record fails as not written, and can be sent again."""
    brokers = scripted(1, (-1,))
    producer = Producer(brokers.cluster(), ProducerOptions(delivery_timeout_s=10))
    delivery = producer.send("t", b"v", partition=0)
    with pytest.raises(DeliveryFailed) as failure:
        producer.flush()
    assert type(delivery.error) is GaveUp
    assert "has no leader" in str(delivery.error)
    assert failure.value.retriable
    assert sent(brokers) == []


def test_sequences_restart_after_a_rejected_batch() -> None:
    """A batch with a final error leaves a gap: the next epoch starts with sequence 0 (KIP-360)."""
    brokers = scripted()
    producer = Producer(brokers.cluster(), ProducerOptions(**ONE_EACH))
    producer.send("t", b"fine", partition=0)
    producer.flush()
    brokers[1].then(PRODUCE, refuse(ErrorCode.MESSAGE_TOO_LARGE))
    bad = producer.send("t", b"bad", partition=0)
    with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
        producer.flush()
    assert isinstance(bad.error, RecordTooLarge)
    good = producer.send("t", b"good", partition=0)
    producer.flush()
    assert good.error is None
    assert sent(brokers) == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_batches_behind_a_rejected_one_are_renumbered() -> None:
    """Batches rejected only because of the one before them are sent again, in order, and written once."""
    brokers = scripted()
    held: list[Request] = []
    brokers[1].always(PRODUCE, held.append)
    producer = Producer(brokers.cluster(), ProducerOptions(**ONE_EACH))
    deliveries = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    producer.poll(0.1)
    assert len(held) == 3
    brokers[1].always(PRODUCE, OK)
    held[0].respond(produce_response(held[0], error=ErrorCode.MESSAGE_TOO_LARGE))
    for request in held[1:]:
        request.respond(produce_response(request, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    with pytest.raises(DeliveryFailed):
        producer.flush()
    assert [delivery.error is None for delivery in deliveries] == [False, True, True]
    assert sent(brokers)[3:] == [(0, 1, 0), (0, 1, 1)]
    assert values(brokers)[3:] == [b"1", b"2"]


@pytest.mark.parametrize("behind", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_batches_behind_a_retried_one_keep_their_numbers(behind: ErrorCode) -> None:
    """After a retriable error, the epoch stays the same, regardless of the responses to later batches."""
    brokers = scripted()
    held: list[Request] = []
    brokers[1].always(PRODUCE, held.append)
    producer = Producer(brokers.cluster(), ProducerOptions(**ONE_EACH))
    deliveries = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    producer.poll(0.1)
    brokers[1].always(PRODUCE, OK)
    for request, code in zip(held, (ErrorCode.KAFKA_STORAGE_ERROR, behind, behind), strict=True):
        request.respond(produce_response(request, error=code))
    producer.flush()
    assert [delivery.error for delivery in deliveries] == [None] * 3
    assert sent(brokers) == [(0, 0, 0), (0, 0, 1), (0, 0, 2)] * 2
    assert values(brokers)[3:] == [b"0", b"1", b"2"]


def test_gap_hidden_by_a_lost_response() -> None:
    """If a leader misses earlier batches, a batch that may be written elsewhere is not sent again."""
    brokers = scripted()
    brokers[1].then(PRODUCE, lambda request: request.connection.close(), refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    producer = Producer(brokers.cluster())
    delivery = producer.send("t", b"v", partition=0)
    with pytest.raises(DeliveryFailed):
        producer.flush()
    assert isinstance(delivery.error, OutcomeUnknown)
    producer.send("t", b"next", partition=0)
    producer.flush()
    assert sent(brokers) == [(0, 0, 0), (0, 0, 0), (0, 1, 0)]


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    """Five idempotent batches are in flight, because leaders recognize five retries; otherwise one."""
    for options, most in (({}, 5), ({"acks": 1}, 1)):
        brokers = scripted()
        brokers[1].always(
            PRODUCE, lambda request: request.connection.send_later(5, request.response_bytes(OK(request)))
        )
        producer = Producer(brokers.cluster(), ProducerOptions(linger_s=0.0, **options))  # type: ignore[arg-type]
        for number in range(9):
            producer.send("t", b"%d" % number, partition=0)
            producer.poll()
        assert len(brokers[1].requests_to(PRODUCE)) == most
        producer.close()
        assert values(brokers) == [b"%d" % number for number in range(9)]


def test_throttled_producer_waits() -> None:
    """The producer sends the rest after the throttle time."""
    brokers = scripted()
    brokers[1].then(PRODUCE, partial(produce_response, throttle_ms=3000))
    with Producer(brokers.cluster(), ProducerOptions(**ONE_EACH)) as producer:
        producer.send("t", b"1", partition=0)
        producer.flush()
        producer.send("t", b"2", partition=0)
    first, second = brokers[1].requests_to(PRODUCE)
    assert second.at_s - first.at_s >= 3


def test_acks_0() -> None:
    """The broker does not respond, and the record is considered sent."""
    brokers = scripted()
    brokers[1].always(PRODUCE, lambda request: None)
    with Producer(brokers.cluster(), ProducerOptions(acks=0)) as producer:
        delivery = producer.send("t", b"v", partition=0)
        producer.flush()
        brokers.sleep(1)
    assert delivery.offset == -1
    assert brokers[1].requests_to(PRODUCE)[0].body["acks"] == 0
    assert not brokers[1].requests_to(INIT_PRODUCER_ID)


def test_contradictory_options_are_rejected() -> None:
    for wrong in ({"acks": 2}, {"acks": 1, "idempotent": True}, {"acks": 0, "transactional_id": "x"}):
        with pytest.raises(ValueError, match="acks"):
            ProducerOptions(**wrong)  # type: ignore[arg-type]


def test_exit_after_an_exception_does_not_wait() -> None:
    """An interrupt ends a producer at once, even if no broker responds."""
    brokers = scripted()
    brokers[1].always(PRODUCE, lambda request: None)
    started_s = brokers.now_s
    producer = Producer(brokers.cluster())
    with suppress(KeyboardInterrupt), producer:
        producer.send("t", b"v", partition=0)
        raise KeyboardInterrupt
    assert brokers.now_s == started_s
    with pytest.raises(ProducerUnusable):
        producer.send("t", b"v", partition=0)


# --- transactions ---


def transactional() -> tuple[ScriptedBrokers, list[Any]]:
    """Return a broker that is also the coordinator, and the list of its requests."""
    brokers = scripted()
    requests: list[Any] = []
    epochs = iter(range(100))

    def init(request: Request) -> dict[str, Any]:
        requests.append(("init", request.body["producer_id"], request.body["producer_epoch"]))
        return producer_id_response(request) | {"producer_epoch": next(epochs)}

    def add(request: Request) -> dict[str, Any]:
        topics = request.body["v3_and_below_topics"]
        requests.append(("add", topics[0]["partitions"]))
        rows = [{"partition_index": each, "partition_error_code": 0} for each in topics[0]["partitions"]]
        result = [{"name": "t", "results_by_partition": rows}]
        return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": result}

    def end(request: Request) -> dict[str, Any]:
        requests.append(("commit" if request.body["committed"] else "abort", request.body["producer_epoch"]))
        return {"throttle_time_ms": 0, "error_code": 0}

    def produce(request: Request) -> dict[str, Any]:
        (_, header), *_ = produced_batches(request)
        requests.append(("produce", header.producer_epoch, header.base_sequence))
        return OK(request)

    row = {"key": "x", "node_id": 1, "host": "broker-1", "port": 9092, "error_code": 0, "error_message": None}
    brokers[1].always(FIND_COORDINATOR, lambda request: {"throttle_time_ms": 0, "coordinators": [row]})
    brokers[1].always(INIT_PRODUCER_ID, init)
    brokers[1].always(ADD_PARTITIONS_TO_TXN, add)
    brokers[1].always(END_TXN, end)
    brokers[1].always(PRODUCE, produce)
    return brokers, requests


def test_partitions_are_added_before_records_are_sent() -> None:
    """A partition is added once to each transaction before records; sequences continue after a commit."""
    brokers, requests = transactional()
    with Producer(brokers.cluster(), ProducerOptions(transactional_id="x")) as producer:
        for _ in range(2):
            producer.begin()
            producer.send("t", b"v", partition=0)
            producer.commit()
        producer.begin()
        producer.commit()
    one = [("add", [0]), ("produce", 0, 0), ("commit", 0)]
    assert requests == [("init", -1, -1), *one, ("add", [0]), ("produce", 0, 1), ("commit", 0)]


def test_transaction_with_a_failed_record_can_only_be_aborted() -> None:
    """The commit is rejected; after the abort the next transaction has the next epoch and succeeds."""
    brokers, requests = transactional()
    with Producer(brokers.cluster(), ProducerOptions(transactional_id="x")) as producer:
        producer.begin()
        brokers[1].then(PRODUCE, refuse(ErrorCode.MESSAGE_TOO_LARGE))
        producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionFailed):
            producer.commit()
        producer.abort()
        producer.begin()
        producer.send("t", b"v", partition=0)
        producer.commit()
    assert requests == [
        ("init", -1, -1),
        ("add", [0]),
        ("abort", 0),
        ("init", 77, 0),
        ("add", [0]),
        ("produce", 1, 0),
        ("commit", 1),
    ]


def test_failed_flush_prevents_the_commit() -> None:
    """A transaction that lacks a record cannot be committed, and no further record is sent in it."""
    brokers, requests = transactional()
    with Producer(brokers.cluster(), ProducerOptions(transactional_id="x")) as producer:
        producer.begin()
        brokers[1].then(PRODUCE, refuse(ErrorCode.MESSAGE_TOO_LARGE))
        producer.send("t", b"v", partition=0)
        with pytest.raises(DeliveryFailed):
            producer.flush()
        with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
            producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
            producer.commit()
        producer.abort()
    assert [each[0] for each in requests] == ["init", "add", "abort", "init"]


def test_batches_behind_a_rejected_one_fail_with_the_transaction() -> None:
    """They are not sent again, because their sequence numbers would leave a gap."""
    brokers, _ = transactional()
    held: list[Request] = []
    brokers[1].always(PRODUCE, held.append)
    with Producer(brokers.cluster(), ProducerOptions(transactional_id="x", **ONE_EACH)) as producer:
        producer.begin()
        deliveries = [producer.send("t", b"%d" % number, partition=0) for number in range(8)]
        producer.poll(0.1)
        assert len(held) == 5
        held[0].respond(produce_response(held[0], error=ErrorCode.MESSAGE_TOO_LARGE))
        for request in held[1:]:
            request.respond(produce_response(request, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        with pytest.raises(DeliveryFailed, match="8 records"):
            producer.flush()
        assert len(held) == 5
        assert all(delivery.error is not None for delivery in deliveries)
        producer.abort()


def test_abort_drops_unsent_records() -> None:
    brokers, requests = transactional()
    with Producer(brokers.cluster(), ProducerOptions(transactional_id="x")) as producer:
        producer.begin()
        delivery = producer.send("t", b"v", partition=0)
        started_s = brokers.now_s
        producer.abort()
        assert brokers.now_s == started_s
        assert isinstance(delivery.error, TransactionFailed)
    assert [each[0] for each in requests] == ["init"]


def test_commit_without_a_response() -> None:
    """The error says that the outcome is unknown; the producer neither aborts nor continues."""
    brokers, requests = transactional()
    producer = Producer(brokers.cluster(operation_timeout_s=5), ProducerOptions(transactional_id="x"))
    producer.begin()
    producer.send("t", b"v", partition=0)
    brokers[1].always(END_TXN, lambda request: {"throttle_time_ms": 0, "error_code": ErrorCode.NOT_COORDINATOR})
    with pytest.raises(OutcomeUnknown, match="whether it was committed"):
        producer.commit()
    with pytest.raises(OutcomeUnknown):
        producer.begin()
    producer.close()
    assert [each[0] for each in requests] == ["init", "add", "produce"]


def test_exit_after_an_exception_aborts() -> None:
    """The records of an interrupted program's transaction are never visible."""
    brokers, requests = transactional()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x", **ONE_EACH))
    with suppress(KeyboardInterrupt), producer:
        producer.begin()
        producer.send("t", b"v", partition=0)
        producer.poll(1)
        raise KeyboardInterrupt
    assert [each[0] for each in requests] == ["init", "add", "produce", "abort"]


def test_interrupt_during_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during any request aborts the transaction, and the next one has the next epoch."""
    brokers, requests = transactional()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x"))
    send = Connection.send

    def interrupted(self: Connection, api: Any, *arguments: Any, **options: Any) -> Any:
        if api is PRODUCE:
            raise KeyboardInterrupt
        return send(self, api, *arguments, **options)

    with suppress(KeyboardInterrupt), producer:
        producer.begin()
        producer.send("t", b"v", partition=0)
        monkeypatch.setattr(Connection, "send", interrupted)
        producer.flush()
    assert [each[0] for each in requests] == ["init", "add", "abort", "init"]


def test_interrupt_while_waiting_for_a_response() -> None:
    """The partition may have been added, so the transaction is aborted, over a new connection."""
    brokers, requests = transactional()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x"))

    def interrupt(request: Request) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), producer:
        producer.begin()
        producer.send("t", b"v", partition=0)
        brokers[1].then(ADD_PARTITIONS_TO_TXN, interrupt)
        producer.flush()
    assert [each[0] for each in requests] == ["init", "abort", "init"], "the abort ends a transaction that may be open"


def test_records_fail_without_authorization() -> None:
    """If the producer cannot obtain its ID, the records that wait for it fail."""
    brokers = scripted()
    refused = {"throttle_time_ms": 0, "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    brokers[1].always(INIT_PRODUCER_ID, lambda request: refused)
    producer = Producer(brokers.cluster(), ProducerOptions(**ONE_EACH))
    deliveries = [producer.send("t", b"v", partition=0) for _ in range(3)]
    with pytest.raises(DeliveryFailed, match="3 records were not delivered: CLUSTER_AUTHORIZATION_FAILED"):
        producer.flush()
    assert not any(isinstance(delivery.error, OutcomeUnknown) for delivery in deliveries)


def test_fenced_producer_stops() -> None:
    """A producer that is fenced by a second one with the same transactional ID cannot continue."""
    brokers, _ = transactional()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x"))
    producer.begin()
    brokers[1].then(PRODUCE, refuse(ErrorCode.INVALID_PRODUCER_EPOCH))
    producer.send("t", b"v", partition=0)
    with pytest.raises(ProducerUnusable, match="another producer"):
        producer.commit()
    with pytest.raises(ProducerUnusable):
        producer.begin()
    producer.close()


def test_transactional_calls_out_of_order() -> None:
    """A call out of order raises an error that names the missing step."""
    brokers, _ = transactional()
    with pytest.raises(ValueError, match="transactional_id"):
        Producer(brokers.cluster()).begin()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x"))
    for call in (producer.commit, producer.abort, lambda: producer.send("t", b"v")):
        with pytest.raises(ValueError, match="call begin"):
            call()
    producer.begin()
    with pytest.raises(ValueError, match="already open"):
        producer.begin()
