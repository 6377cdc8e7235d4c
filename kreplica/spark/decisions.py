"""Which micro-batches of a sink are decided: kept as offsets that the group of the sink's name commits.

The offset is the number of the next micro-batch; its metadata names the transactions that belong to the last one, so
that whoever comes later can commit what was decided and not yet committed.  Offsets are read and written at once, in
transactions, and need no topic to be read through; the topic that they are committed for stays empty.  What is not
kept for ever, by ``offsets.retention.minutes``, is the decision of a sink that nobody runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import committed_offsets
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.sansio.errors import BrokerRefused
from kreplica.sansio.lanes import ProducerIdentity
from kreplica.sansio.offsets import CommittedOffset

PARTITIONS = 20
"""Of the decisions' topic: so many times ``METADATA_SIZE_MAX`` bytes name a micro-batch's transactions."""

METADATA_SIZE_MAX = 4000
"""Bytes of metadata that go with one offset: brokers take 4,096 (``offset.metadata.max.bytes``)."""


class TooManyLanes(ValueError):
    """More transactions than a decision has room for."""


class Decision(NamedTuple):
    """The last micro-batch that a sink has decided.

    :param lanes: by number, who prepared a transaction; None where a task had nothing to write.
    """

    batch_id: int
    lanes: Sequence[ProducerIdentity | None]


def lane_id(sink_id: str, lane: int) -> str:
    """A lane's transactional id."""
    return f"{sink_id}-{lane}"


def make_topic(cluster: Cluster, topic: str) -> None:
    """Let the decisions' topic be there."""
    cluster.retrying(lambda: cluster.refresh((topic,)))
    if topic in cluster.view.topics:
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


def decision_offsets(topic: str, decision: Decision) -> dict[TopicPartition, CommittedOffset]:
    """What is to be committed for a decision: all at once, in one transaction.

    :raise TooManyLanes: it does not fit.
    """
    pieces = _pieces(_text(each) for each in decision.lanes)
    if len(pieces) > PARTITIONS:
        raise TooManyLanes(f"{len(decision.lanes)} tasks write at the same time; coalesce to fewer")
    return {
        TopicPartition(topic, number): CommittedOffset(decision.batch_id + 1, metadata=piece)
        for number, piece in enumerate(pieces)
    }


def parse_decision(committed: Mapping[int, CommittedOffset]) -> Decision | None:
    """The decision that offsets say, by partition; those of an earlier one may still be there."""
    first = committed.get(0)
    if first is None:
        return None
    lanes: list[ProducerIdentity | None] = []
    number = 0
    while (found := committed.get(number)) is not None and found.offset == first.offset:
        lanes += [_identity(text) for text in found.metadata.split(",") if text]
        number += 1
    return Decision(first.offset - 1, tuple(lanes))


def _pieces(texts: Iterable[str]) -> list[str]:
    pieces = [""]
    for text in texts:
        longer = f"{pieces[-1]},{text}" if pieces[-1] else text
        if len(longer) <= METADATA_SIZE_MAX:
            pieces[-1] = longer
        else:
            pieces.append(text)
    return pieces


def _text(identity: ProducerIdentity | None) -> str:
    return "-" if identity is None else f"{identity.producer_id}:{identity.epoch}"


def _identity(text: str) -> ProducerIdentity | None:
    if text == "-":
        return None
    producer_id, _, epoch = text.partition(":")
    return ProducerIdentity(int(producer_id), int(epoch))
