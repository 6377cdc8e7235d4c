"""Which micro-batches of a sink are decided: kept as offsets that the group of the sink's name commits.

The offset is the number of the next micro-batch; its metadata says whose micro-batch that was, and which transactions
belong to it, so that whoever comes later can commit what was decided and not yet committed.  Offsets are read and
written at once, in transactions, and need no topic to be read through; the topic that they are committed for stays
empty.  What is not kept for ever, by ``offsets.retention.minutes``, is the decision of a sink that nobody runs.
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
"""Of the decisions' topic: the last one has the mark of what is committed; each other one takes
``METADATA_SIZE_MAX`` bytes that name a micro-batch's transactions."""

SETTLED = PARTITIONS - 1

METADATA_SIZE_MAX = 4000
"""Bytes of metadata that go with one offset: brokers take 4,096 (``offset.metadata.max.bytes``)."""


class TooManyLanes(ValueError):
    """More transactions than a decision has room for."""


class DecidedLane(NamedTuple):
    """One task's transaction.

    :param attempt: which of the task's attempts wrote it.
    :param identity: by which it is ended.
    """

    number: int
    attempt: int
    identity: ProducerIdentity


class Decision(NamedTuple):
    """The last micro-batch that a sink has decided.

    :param query: whose micro-batch it is: the id of a streaming query; empty for batches that a driver numbers.
    :param topic: that all its rows go to; empty where a column says.
    :param run: of the query, whose lanes these are.
    :param lanes: those that have rows.
    :param is_settled: all of them were committed.
    """

    batch_id: int
    query: str = ""
    topic: str = ""
    run: str = ""
    lanes: tuple[DecidedLane, ...] = ()
    is_settled: bool = False


def lane_id(sink_id: str, run: str, lane: int, attempt: int) -> str:
    """A lane's transactional id: of one run and one attempt, so that no try takes over what another may commit.

    The next micro-batches of the run use it again.
    """
    return f"{sink_id}-{run}-{lane}-{attempt}"


def make_topic(cluster: Cluster, topic: str) -> None:
    """Let the decisions' topic be there.

    :raise ValueError: it is, with too few partitions.
    """
    cluster.retrying(lambda: cluster.refresh((topic,)))
    found = cluster.view.topics.get(topic)
    if found is not None and len(found.partitions) < PARTITIONS:
        raise ValueError(
            f"topic {topic} has {len(found.partitions)} partitions, and decisions need {PARTITIONS}: "
            "let kreplica.decisions.topic name one that is not there yet"
        )
    if found is not None:
        return
    try:
        create_topic(cluster, topic, PARTITIONS)
    except BrokerRefused as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def read_decision(cluster: Cluster, topic: str, sink_id: str) -> Decision | None:
    """What a sink decided last, once no transaction that is open is to change that.

    :raise ClientError: the coordinator does not say.
    """
    committed = committed_offsets(cluster, sink_id, (topic,), stable=True)
    return parse_decision({key.partition: value for key, value in committed.items()})


def settle(cluster: Cluster, topic: str, sink_id: str, decision: Decision) -> None:
    """Note that a decision's lanes are committed, so that nobody has to ask for that again.

    :raise ClientError: it is not noted, which does no harm.
    """
    place = TopicPartition(topic, SETTLED)
    commit_offsets(cluster, sink_id, {place: decision.batch_id + 1}, decision.query)


def decision_offsets(topic: str, decision: Decision) -> dict[TopicPartition, CommittedOffset]:
    """What is to be committed for a decision: all at once, in one transaction.

    :raise TooManyLanes: it does not fit.
    """
    first = f"{decision.query};{decision.topic};{decision.run};"
    pieces = _pieces(first, (_text(each) for each in decision.lanes))
    if len(pieces) > SETTLED:
        raise TooManyLanes(f"{len(decision.lanes)} tasks write at the same time; coalesce to fewer")
    return {
        TopicPartition(topic, number): CommittedOffset(decision.batch_id + 1, metadata=piece)
        for number, piece in enumerate(pieces)
    }


def parse_decision(committed: Mapping[int, CommittedOffset]) -> Decision | None:
    """The decision that offsets say, by partition; those of an earlier one may still be there.

    :raise ValueError: somebody else commits as the group of that name.
    """
    first = committed.get(0)
    if first is None or first.offset < 0:
        return None
    parts = first.metadata.split(";")
    if len(parts) != 4:
        raise ValueError(f"a group that has the sink's name committed {first.metadata!r}, which no sink does")
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
