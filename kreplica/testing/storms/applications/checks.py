"""Checks of the applications' sends and reads against the final logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kreplica.model import TopicPartition
from kreplica.testing.storms.applications.copier import original
from kreplica.testing.storms.applications.history import ReadHistory, Sent
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Record

Log = Sequence[Record]
"""All records of a partition that a reader must see."""

def check_sent(sent: Mapping[bytes, Sent], logs: Mapping[TopicPartition, Log]) -> None:
    """Check that each acknowledged record is at its acknowledged offset, and no record is in the log twice.

    :param logs: logs of all partitions of the topic.
    """
    locations: dict[bytes, TopicPartition] = {}
    for partition, log in logs.items():
        last: dict[str, int] = {}
        for record in log:
            value = record.value or b""
            send = sent.get(value)
            location = f"{partition} has {value[:20]!r} at {record.offset}"
            assert send is not None, f"{location}, which was never sent"
            first = locations.setdefault(value, partition)
            assert first is partition, f"{value[:20]!r} is in {first} and in {partition}"
            previous_number = last.get(send.producer, -1)
            assert previous_number < send.number, (
                f"{location}, after record number {previous_number} of the same producer"
            )
            assert not send.is_lost, f"{location}, but its send failed with {send.error}"
            assert record.key == send.key, f"{location} with key {record.key!r}, but it was sent with key {send.key!r}"
            if send.key is not None:
                expected = partition_of_key(send.key, len(logs))
                assert partition.partition == expected, f"{location}, but {send.key!r} belongs to partition {expected}"
            last[send.producer] = send.number
    for value, send in sent.items():
        if send.written is not None:
            assert value in locations, f"{value[:20]!r} was acknowledged at {send.written}, but is in no log"
            _check_acknowledged(send, logs[locations[value]], locations[value])


def _check_acknowledged(sent: Sent, log: Log, partition: TopicPartition) -> None:
    written = sent.written
    assert written is not None
    assert written.partition == partition, f"{sent.value[:20]!r} was acknowledged in {written}, but is in {partition}"
    if written.offset >= 0:
        value = log[written.offset].value if written.offset < len(log) else None
        assert value == sent.value, f"{sent.value[:20]!r} was acknowledged at {written}, where the log has {value!r}"


def check_read(history: ReadHistory, logs: Mapping[TopicPartition, Log]) -> None:
    """Check that a reader received the first records of each log, in order and completely.

    :param logs: the records that are visible to the reader.
    """
    for partition, received in history.records.items():
        for previous, current in pairwise(received):
            assert previous[0] < current[0], (
                f"{history.reader} received {partition} at {current[0]} after {previous[0]}"
            )
        expected = [(record.offset, record.value or b"") for record in logs[partition]][: len(received)]
        for expected_record, actual_record in zip(expected, received, strict=False):
            assert expected_record == actual_record, (
                f"{history.reader} received {actual_record[1][:20]!r} of {partition} at {actual_record[0]}, "
                f"not {expected_record[1][:20]!r} at {expected_record[0]}"
            )
        assert len(expected) == len(received), f"{history.reader} received more records of {partition} than its log has"


def check_copied(source: Log, target: Log, partition: TopicPartition) -> None:
    """Check that the target has a copy of each record of the source, once and in order."""
    expected = [record.value or b"" for record in source]
    copied = [original(record.value or b"") for record in target]
    for index, (expected_record, actual_record) in enumerate(zip(expected, copied, strict=False)):
        assert expected_record == actual_record, (
            f"{partition}: record {index} is a copy of {actual_record[:24]!r}, not of {expected_record[:24]!r}"
        )
    assert len(copied) == len(expected), f"{partition}: {len(copied)} of {len(expected)} records were copied"
