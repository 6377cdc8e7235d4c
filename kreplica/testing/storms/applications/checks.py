"""Whether what applications were told is so, by what stands in the logs in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kreplica.model import TopicPartition
from kreplica.testing.storms.applications.history import Followed, Sent
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Record

Log = Sequence[Record]
"""A partition's records, as a reader is to see them who sees them all."""

CARRIED = b"of "


def check_sent(sent: Mapping[bytes, Sent], logs: Mapping[TopicPartition, Log]) -> None:
    """Whether each record that was acknowledged is where its producer was told, and none is there twice.

    :param logs: of all partitions of the topic.
    :raise AssertionError: it is not so.
    """
    found: dict[bytes, TopicPartition] = {}
    for partition, log in logs.items():
        last: dict[str, int] = {}
        for record in log:
            value = record.value or b""
            of = sent.get(value)
            assert of is not None, f"{partition} has {value[:20]!r} at {record.offset}, which nobody sent"
            before = found.setdefault(value, partition)
            assert before is partition, f"{value[:20]!r} is in {before}, and in {partition}"
            behind = last.get(of.producer, -1)
            assert behind < of.number, f"{partition} has {value[:20]!r} at {record.offset}, behind number {behind}"
            assert not of.is_lost, f"{partition} has {value[:20]!r} at {record.offset}, which failed with {of.error}"
            assert record.key == of.key, f"{value[:20]!r} was sent with the key {of.key!r}, and has {record.key!r}"
            if of.key is not None:
                expected = partition_of_key(of.key, len(logs))
                assert partition.partition == expected, f"key {of.key!r} belongs into {expected}, not {partition}"
            last[of.producer] = of.number
    for value, each in sent.items():
        if each.written is not None:
            assert value in found, f"{value[:20]!r} was acknowledged at {each.written}, and is nowhere"
            _check_place(each, logs[found[value]], found[value])


def _check_place(sent: Sent, log: Log, partition: TopicPartition) -> None:
    written = sent.written
    assert written is not None
    assert written.partition == partition, f"{sent.value[:20]!r} was told to be in {written}, and is in {partition}"
    if written.offset >= 0:
        there = log[written.offset].value if written.offset < len(log) else b"nothing"
        assert there == sent.value, f"{sent.value[:20]!r} was told to be at {written}, where {there!r} is"


def check_followed(followed: Followed, logs: Mapping[TopicPartition, Log]) -> None:
    """Whether a reader was given exactly what is there, in order, as far as it came.

    :param logs: as it is to see them.
    :raise AssertionError: it was not.
    """
    for partition, given in followed.records.items():
        for before, after in pairwise(given):
            assert before[0] < after[0], f"{followed.reader} was given {partition} at {after[0]} behind {before[0]}"
        expected = [(record.offset, record.value or b"") for record in logs[partition]][: len(given)]
        for wanted, found in zip(expected, given, strict=False):
            assert wanted == found, (
                f"{followed.reader} was given {found[1][:20]!r} of {partition} at {found[0]}, "
                f"not {wanted[1][:20]!r} at {wanted[0]}"
            )
        assert len(expected) == len(given), f"{followed.reader} was given more of {partition} than there is"


def check_carried(source: Log, target: Log, partition: TopicPartition) -> None:
    """Whether each record of the source has become one of the target, once and in order.

    :raise AssertionError: it has not.
    """
    expected = [CARRIED + (record.value or b"") for record in source]
    made = [record.value or b"" for record in target]
    for index, (wanted, found) in enumerate(zip(expected, made, strict=False)):
        assert wanted == found, f"{partition}: record {index} is {found[:24]!r}, not {wanted[:24]!r}"
    assert len(made) == len(expected), f"{partition}: {len(made)} records were made of {len(expected)}"
