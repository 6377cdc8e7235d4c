"""Decisions of a sink, stored as committed offsets of the group whose ID is the sink's ID.

A decision makes a micro-batch final: from then on its transactions are only committed, never aborted. The committed
offset is the number of the next micro-batch. Its metadata contains the query and the transactions of the decided
micro-batch, so that a later run can commit them if an earlier one has not. Offsets are committed in a transaction, and
read in one request, without scanning a topic; the topic for which they are committed is always empty. If the sink is
not running, its decision expires after ``offsets.retention.minutes``.
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
"""Partitions of the decisions topic. The offset of the last one marks the decision whose transactions are committed;
the metadata of the others contains the decision, up to ``METADATA_SIZE_MAX`` bytes in each.
"""

SETTLED_PARTITION = PARTITIONS - 1

METADATA_SIZE_MAX = 4000
"""Metadata bytes per offset; brokers accept 4,096 (``offset.metadata.max.bytes``)."""


class TooManyLanes(ValueError):
    """The transactions of a micro-batch do not fit in one decision."""


class DecidedLane(NamedTuple):
    """The transaction of one task.

    :param attempt: number of the task attempt that wrote it.
    :param identity: producer ID and epoch for ending it.
    """

    number: int
    attempt: int
    identity: ProducerIdentity


class Decision(NamedTuple):
    """The last micro-batch that a sink decided.

    :param query: ID of the streaming query; empty for a batch write, whose number the driver sets.
    :param topic: topic of all rows; empty if a column contains the topics.
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
    """Return the transactional ID of a lane, which later micro-batches of the same run reuse.

    It contains the run and the attempt, so that one attempt cannot fence a lane that another may commit.
    """
    return f"{sink_id}-{run}-{lane}-{attempt}"


def create_decisions_topic(cluster: Cluster, topic: str) -> None:
    """Create the decisions topic if it does not exist.

    :raise ValueError: the topic exists with too few partitions.
    """
    found = cluster.core.known_topic(topic)
    if found is None:
        cluster.retrying(lambda: cluster.refresh((topic,)))
        found = cluster.view.topics.get(topic)
    if found is not None and len(found.partitions) < PARTITIONS:
        raise ValueError(
            f"topic {topic} has {len(found.partitions)} partitions, but decisions need {PARTITIONS}: "
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


def mark_settled(cluster: Cluster, topic: str, sink_id: str, decision: Decision) -> None:
    """Record that the lanes of a decision are committed, so that later runs do not commit them again.

    :raise ClientError: the mark was not written, which is harmless.
    """
    mark = TopicPartition(topic, SETTLED_PARTITION)
    commit_offsets(cluster, sink_id, {mark: decision.batch_id + 1}, decision.query)


def decision_offsets(topic: str, decision: Decision) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit, in one transaction, for a decision.

    :raise TooManyLanes: the decision does not fit.
    """
    first = f"{decision.query};{decision.topic};{decision.run};"
    parts = _metadata_parts(first, (_text(each) for each in decision.lanes))
    if len(parts) > SETTLED_PARTITION:
        raise TooManyLanes(f"{len(decision.lanes)} tasks do not fit in a decision; reduce their number with coalesce()")
    return {
        TopicPartition(topic, number): CommittedOffset(decision.batch_id + 1, metadata=part)
        for number, part in enumerate(parts)
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
        raise ValueError(f"the group of the sink has committed {first.metadata!r}, which is not a decision")
    query, topic, run, text = parts
    texts = [text]
    for number in range(1, SETTLED_PARTITION):
        found = committed.get(number)
        if found is None or found.offset != first.offset:
            break
        texts.append(found.metadata)
    lanes = tuple(_lane(each) for part in texts for each in part.split(",") if each)
    mark = committed.get(SETTLED_PARTITION)
    is_settled = mark is not None and mark.offset == first.offset and mark.metadata == query
    return Decision(first.offset - 1, query, topic, run, lanes, is_settled)


def _metadata_parts(first: str, texts: Iterable[str]) -> list[str]:
    parts, has_lane = [first], False
    for text in texts:
        longer = f"{parts[-1]},{text}" if has_lane else f"{parts[-1]}{text}"
        if len(longer) <= METADATA_SIZE_MAX:
            parts[-1] = longer
        else:
            parts.append(text)
        has_lane = True
    return parts


def _text(lane: DecidedLane) -> str:
    return f"{lane.number}:{lane.attempt}:{lane.identity.producer_id}:{lane.identity.epoch}"


def _lane(text: str) -> DecidedLane:
    number, attempt, producer_id, epoch = (int(each) for each in text.split(":"))
    return DecidedLane(number, attempt, ProducerIdentity(producer_id, epoch))
