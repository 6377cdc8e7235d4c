"""How a sink's last decision is stored in committed offsets, and used by tasks."""

from __future__ import annotations

import pytest

from kreplica.client_core.offsets import CommittedOffset
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.model import TopicPartition
from kreplica.spark.sink.decision_store import (
    METADATA_SIZE_MAX,
    SETTLED_PARTITION,
    DecidedLane,
    Decision,
    TooManyLanes,
    decision_offsets,
    parse_decision,
)
from kreplica.spark.sink.write_decision import ConcurrentRun, DecisionsExpired, SinkOfOtherQuery, Task, should_write

QUERY = "7c3f1f0e-6e5b-4c0a-9a53-0d1d6bd0a001"


def decided_lane(number: int, producer_id: int = 5) -> DecidedLane:
    return DecidedLane(number, number % 2, ProducerIdentity(producer_id + number, 3))


def stored_offsets(decision: Decision) -> dict[int, CommittedOffset]:
    return {key.partition: value for key, value in decision_offsets("d", decision).items()}


def test_decision_is_stored_in_several_offsets() -> None:
    """The write uses as many offsets as necessary; those left by an earlier, larger decision are ignored."""
    large = Decision(7, QUERY, "orders", "0123abcd", tuple(decided_lane(number, 10_000_000) for number in range(900)))
    offsets = stored_offsets(large)
    assert len(offsets) == 4
    assert max(len(each.metadata) for each in offsets.values()) <= METADATA_SIZE_MAX
    assert parse_decision(offsets) == large
    small = Decision(8, QUERY, "", "0123abcd", (decided_lane(1),))
    assert parse_decision(offsets | stored_offsets(small)) == small
    assert decision_offsets("d", Decision(3)) == {TopicPartition("d", 0): CommittedOffset(4, metadata=";;;")}
    assert parse_decision({}) is None
    with pytest.raises(TooManyLanes, match="coalesce"):
        decision_offsets("d", Decision(1, lanes=(decided_lane(1, 1 << 40),) * 10_000))


def test_decision_is_settled_by_its_own_mark() -> None:
    """A mark of an earlier decision or of another query is ignored."""
    decision = Decision(7, QUERY, "", "0", (decided_lane(0),))
    for offset, query, is_settled in ((8, QUERY, True), (7, QUERY, False), (8, "", False)):
        mark = {SETTLED_PARTITION: CommittedOffset(offset, metadata=query)}
        assert parse_decision(stored_offsets(decision) | mark) == decision._replace(is_settled=is_settled)


def test_group_of_another_application() -> None:
    """Offsets that another application has committed are refused."""
    with pytest.raises(ValueError, match="which is not a decision"):
        parse_decision({0: CommittedOffset(17, metadata="")})


def stream_task(batch_id: int, query: str = QUERY) -> Task:
    return Task("orders", batch_id, 0, query=query, is_stream=True)


def test_micro_batches_are_consecutive() -> None:
    """The next batch is written, the last one is already decided; batches without tasks may be skipped."""
    assert should_write(None, stream_task(0), topic="t")
    assert should_write(Decision(3, QUERY, "t"), stream_task(4), topic="t")
    assert should_write(Decision(3, QUERY, "t"), stream_task(6), topic="t")
    assert not should_write(Decision(3, QUERY, "t"), stream_task(3), topic="other")


def test_old_batch_number_is_rejected() -> None:
    """An old number means that a checkpoint was restored or two runs are active, so the rows may differ."""
    with pytest.raises(ConcurrentRun, match=r"batch 3 of sink orders: batch 4 is already decided"):
        should_write(Decision(4, QUERY), stream_task(3), topic="t")
    with pytest.raises(ConcurrentRun, match=r"must follow batch 2, but the last decided batch is 3"):
        should_write(Decision(3), Task("orders", 5, 0), topic="t", batch_after=2)


@pytest.mark.parametrize("batch_id", [0, 3, 4])
def test_new_checkpoint_with_the_name_of_an_old_sink(batch_id: int) -> None:
    """A new query's batch numbers start at 0, which must not skip rows: the task fails with an error."""
    with pytest.raises(SinkOfOtherQuery, match=f"orders is used by query {QUERY} .last batch 3., .* of query new"):
        should_write(Decision(3, QUERY), stream_task(batch_id, "new"), topic="t")
    with pytest.raises(SinkOfOtherQuery, match="used by batch writes"):
        should_write(Decision(3), stream_task(batch_id), topic="t")


def test_two_writes_with_the_same_name_and_number() -> None:
    """A second write to another target is refused instead of being treated as a retry of the first."""
    decision = Decision(3, QUERY, "orders")
    with pytest.raises(SinkOfOtherQuery, match=r"written to topic orders, but this write is to the topics of a column"):
        should_write(decision, Task("s", 3, 0, query=QUERY), topic="")
    assert not should_write(decision, Task("s", 3, 0, query=QUERY), topic="orders")
    assert should_write(decision, Task("s", 4, 0, query=QUERY), topic="payments")


def test_expired_decisions() -> None:
    """A stream whose decisions have expired may have written rows, so the user must confirm the first batch."""
    with pytest.raises(DecisionsExpired, match=r"set kreplica.first.batch=17"):
        should_write(None, stream_task(17), topic="t")
    assert should_write(None, stream_task(17), topic="t", first_batch=17)
    with pytest.raises(DecisionsExpired):
        should_write(None, stream_task(18), topic="t", first_batch=17)
    assert should_write(None, Task("orders", 17, 0), topic="t")  # a batch may have any number
