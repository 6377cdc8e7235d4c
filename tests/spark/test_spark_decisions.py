"""What is kept of a sink's last decision, and what a task makes of it."""

from __future__ import annotations

import pytest

from kreplica.client_core.offsets import CommittedOffset
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.model import TopicPartition
from kreplica.spark.sink.decision_store import (
    METADATA_SIZE_MAX,
    SETTLED,
    DecidedLane,
    Decision,
    TooManyLanes,
    decision_offsets,
    parse_decision,
)
from kreplica.spark.sink.write_decision import AnotherAtWork, DecisionsForgotten, OtherQuery, Task, has_turn

QUERY = "7c3f1f0e-6e5b-4c0a-9a53-0d1d6bd0a001"


def lane(number: int, producer_id: int = 5) -> DecidedLane:
    return DecidedLane(number, number % 2, ProducerIdentity(producer_id + number, 3))


def kept(decision: Decision) -> dict[int, CommittedOffset]:
    return {key.partition: value for key, value in decision_offsets("d", decision).items()}


def test_a_decision_is_kept_in_pieces() -> None:
    """As many as it takes; what an earlier, larger one left is not taken for a part."""
    large = Decision(7, QUERY, "orders", "0123abcd", tuple(lane(number, 10_000_000) for number in range(900)))
    offsets = kept(large)
    assert len(offsets) == 4
    assert max(len(each.metadata) for each in offsets.values()) <= METADATA_SIZE_MAX
    assert parse_decision(offsets) == large
    small = Decision(8, QUERY, "", "0123abcd", (lane(1),))
    assert parse_decision(offsets | kept(small)) == small
    assert decision_offsets("d", Decision(3)) == {TopicPartition("d", 0): CommittedOffset(4, metadata=";;;")}
    assert parse_decision({}) is None
    with pytest.raises(TooManyLanes, match="coalesce"):
        decision_offsets("d", Decision(1, lanes=(lane(1, 1 << 40),) * 10_000))


def test_a_decision_is_settled_by_a_mark_of_its_own_number() -> None:
    """That of an earlier one, or of another query, says nothing of it."""
    decision = Decision(7, QUERY, "", "0", (lane(0),))
    for offset, query, is_settled in ((8, QUERY, True), (7, QUERY, False), (8, "", False)):
        mark = {SETTLED: CommittedOffset(offset, metadata=query)}
        assert parse_decision(kept(decision) | mark) == decision._replace(is_settled=is_settled)


def test_a_group_that_somebody_else_uses() -> None:
    """What it committed is no decision, and is not taken for one."""
    with pytest.raises(ValueError, match="not a sink's decision"):
        parse_decision({0: CommittedOffset(17, metadata="")})


def of_stream(batch_id: int, query: str = QUERY) -> Task:
    return Task("orders", batch_id, 0, query=query, of_stream=True)


def test_micro_batches_follow_one_another() -> None:
    """The next one is written, the last one is decided; one without tasks may be passed over."""
    assert has_turn(None, of_stream(0), topic="t")
    assert has_turn(Decision(3, QUERY, "t"), of_stream(4), topic="t")
    assert has_turn(Decision(3, QUERY, "t"), of_stream(6), topic="t")
    assert not has_turn(Decision(3, QUERY, "t"), of_stream(3), topic="other")


def test_a_number_that_was_passed_is_refused() -> None:
    """It may have had other rows: a checkpoint was put back, or two runs are at work."""
    with pytest.raises(AnotherAtWork, match=r"batch 3 of sink orders: 4 is decided already"):
        has_turn(Decision(4, QUERY), of_stream(3), topic="t")
    with pytest.raises(AnotherAtWork, match=r"is to follow 2, and 3 is decided"):
        has_turn(Decision(3), Task("orders", 5, 0), topic="t", batch_after=2)


@pytest.mark.parametrize("batch_id", [0, 3, 4])
def test_a_new_checkpoint_with_an_old_sinks_name(batch_id: int) -> None:
    """Its numbers begin again, and nothing is skipped for that: both queries are named."""
    with pytest.raises(
        OtherQuery, match=f"orders belongs to query {QUERY}, which has decided batch 3; .* of query new"
    ):
        has_turn(Decision(3, QUERY), of_stream(batch_id, "new"), topic="t")
    with pytest.raises(OtherQuery, match="batches that no query numbers"):
        has_turn(Decision(3), of_stream(batch_id), topic="t")


def test_two_writes_of_one_batch_by_one_name() -> None:
    """The second one would be taken for the first one tried again."""
    decision = Decision(3, QUERY, "orders")
    with pytest.raises(OtherQuery, match=r"rows went to topic orders; these are to go to topics that a column names"):
        has_turn(decision, Task("s", 3, 0, query=QUERY), topic="")
    assert not has_turn(decision, Task("s", 3, 0, query=QUERY), topic="orders")
    assert has_turn(decision, Task("s", 4, 0, query=QUERY), topic="payments")


def test_decisions_that_are_forgotten() -> None:
    """A stream that is not at its beginning may have written: the user has to say that it has not."""
    with pytest.raises(DecisionsForgotten, match=r"set kreplica.first.batch=17"):
        has_turn(None, of_stream(17), topic="t")
    assert has_turn(None, of_stream(17), topic="t", first_batch=17)
    with pytest.raises(DecisionsForgotten):
        has_turn(None, of_stream(18), topic="t", first_batch=17)
    assert has_turn(None, Task("orders", 17, 0), topic="t")  # a batch may have any number
