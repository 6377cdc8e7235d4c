"""Decisions of a sink: which of its micro-batches are decided, stored as committed offsets of the group with the
sink's name.

The offset is the number of the next micro-batch. Its metadata holds the query and the transactions of the decided
micro-batch, so that a later run can commit a micro-batch that was decided but not yet committed. Offsets are read and
written in one request, in transactions, without scanning a topic; the topic that they are committed for stays empty.
The decision of a sink that does not run expires after ``offsets.retention.minutes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import commit_offsets, committed_offsets
from kreplica.client_core.errors import BrokerRefused
from kreplica.client_core.offsets import CommittedOffset
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

PARTITIONS = 20
"""Partitions of the decisions' topic. The last one marks the committed decision; each of the others holds
``METADATA_SIZE_MAX`` bytes that name a micro-batch's transactions.
"""

SETTLED = PARTITIONS - 1

METADATA_SIZE_MAX = 4000
"""Metadata bytes per offset; brokers accept 4,096 (``offset.metadata.max.bytes``)."""


class TooManyLanes(ValueError):
    """The transactions of a micro-batch do not fit into one decision."""


class DecidedLane(NamedTuple):
    """The transaction of one task.

    :param attempt: number of the task attempt that wrote it.
    :param identity: producer ID and epoch that end it.
    """

    number: int
    attempt: int
    identity: ProducerIdentity


class Decision(NamedTuple):
    """The last micro-batch that a sink decided.

    :param query: ID of the streaming query; empty for batches that a driver numbers.
    :param topic: topic of all rows; empty if a column names the topics.
    :param run: ID of the query's run that owns the lanes.
    :param lanes: lanes that have rows.
    :param is_settled: True if all lanes were committed.
    """

    batch_id: int
    query: str = ""
    topic: str = ""
    run: str = ""
    lanes: tuple[DecidedLane, ...] = ()
    is_settled: bool = False


def lane_id(sink_id: str, run: str, lane: int, attempt: int) -> str:
    """Return the transactional ID of a lane. It contains run and attempt, so that one try cannot fence a lane that
    another may commit.

    Later micro-batches of the same run reuse it.
    """
    return f"{sink_id}-{run}-{lane}-{attempt}"


def make_topic(cluster: Cluster, topic: str) -> None:
    """Create the decisions' topic if it does not exist.

    :raise ValueError: the topic exists with too few partitions.
    """
    cluster.retrying(lambda: cluster.refresh((topic,)))
    found = cluster.view.topics.get(topic)
    if found is not None and len(found.partitions) < PARTITIONS:
        raise ValueError(
            f"topic {topic} has {len(found.partitions)} partitions, and decisions need {PARTITIONS}: "
            "set kreplica.decisions.topic to a new topic"
        )
    if found is not None:
        return
    try:
        create_topic(cluster, topic, PARTITIONS)
    except BrokerRefused as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def read_decision(cluster: Cluster, topic: str, sink_id: str) -> Decision | None:
    """Return the last decision of a sink, after open transactions that could change it have ended.

    :raise ClientError: the coordinator does not respond.
    """
    committed = committed_offsets(cluster, sink_id, (topic,), stable=True)
    return parse_decision({key.partition: value for key, value in committed.items()})


def settle(cluster: Cluster, topic: str, sink_id: str, decision: Decision) -> None:
    """Record that the lanes of a decision are committed, so that later runs do not commit them again.

    :raise ClientError: the record is not written, which is harmless.
    """
    place = TopicPartition(topic, SETTLED)
    commit_offsets(cluster, sink_id, {place: decision.batch_id + 1}, decision.query)


def decision_offsets(topic: str, decision: Decision) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit for a decision, in one transaction.

    :raise TooManyLanes: the decision does not fit.
    """
    first = f"{decision.query};{decision.topic};{decision.run};"
    pieces = _pieces(first, (_text(each) for each in decision.lanes))
    if len(pieces) > SETTLED:
        raise TooManyLanes(f"{len(decision.lanes)} tasks write at the same time; use coalesce() to reduce their number")
    return {
        TopicPartition(topic, number): CommittedOffset(decision.batch_id + 1, metadata=piece)
        for number, piece in enumerate(pieces)
    }


def parse_decision(committed: Mapping[int, CommittedOffset]) -> Decision | None:
    """Parse the decision from the group's offsets by partition; some may belong to an earlier decision.

    :raise ValueError: another application commits offsets with that group name.
    """
    first = committed.get(0)
    if first is None or first.offset < 0:
        return None
    parts = first.metadata.split(";")
    if len(parts) != 4:
        raise ValueError(f"a group that has the sink's name committed {first.metadata!r}, not a sink's decision")
    query, topic, run, text = parts
    texts = [text]
    for number in range(1, SETTLED):
        found = committed.get(number)
        if found is None or found.offset != first.offset:
            break
        texts.append(found.metadata)
    lanes = tuple(_lane(each) for piece in texts for each in piece.split(",") if each)
    mark = committed.get(SETTLED)
    is_settled = mark is not None and mark.offset == first.offset and mark.metadata == query
    return Decision(first.offset - 1, query, topic, run, lanes, is_settled)


def _pieces(first: str, texts: Iterable[str]) -> list[str]:
    pieces, is_begun = [first], False
    for text in texts:
        longer = f"{pieces[-1]},{text}" if is_begun else f"{pieces[-1]}{text}"
        if len(longer) <= METADATA_SIZE_MAX:
            pieces[-1] = longer
        else:
            pieces.append(text)
        is_begun = True
    return pieces


def _text(lane: DecidedLane) -> str:
    return f"{lane.number}:{lane.attempt}:{lane.identity.producer_id}:{lane.identity.epoch}"


def _lane(text: str) -> DecidedLane:
    number, attempt, producer_id, epoch = (int(each) for each in text.split(":"))
    return DecidedLane(number, attempt, ProducerIdentity(producer_id, epoch))
