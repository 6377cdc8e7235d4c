"""Converts the start position of a read to unread ranges of the partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.pages import PageRequest, StartPosition, no_leader_responds
from kreplica.admin.messages.positions import NEWEST, PARTITIONS_MAX, Span, decode_spans
from kreplica.admin.peers.leaders import EARLIEST, LATEST, Leaders
from kreplica.model import TopicPartition


async def unread_spans(leaders: Leaders, request: PageRequest) -> dict[int, Span]:
    """Return the ranges to read.

    :raise Problem: 400 for a malformed ``after`` or too many partitions; 404 for an unknown partition; 503 if no
        leader responds.
    """
    topic = request.topic
    if request.after is not None:
        partitions = leaders.published.topics[topic.name].partitions
        spans = decode_spans(topic.topic_id, request.order, request.after)
        return {number: span for number, span in spans.items() if number in partitions}
    keys = [TopicPartition(topic.name, number) for number in _numbers(leaders, request)]
    ends = await leaders.offsets(dict.fromkeys(keys, LATEST), topic.isolation)
    starts = await leaders.offsets(dict.fromkeys(keys, EARLIEST))
    timed: Mapping[TopicPartition, int] = {}
    if request.begin.kind == "timestamp":
        # Backwards, the range ends before the first record of a later time.
        time_ms = request.begin.value + (1 if request.order == NEWEST else 0)
        timed = (await leaders.offsets(dict.fromkeys(keys, time_ms), topic.isolation)).found
    both = [key for key in keys if key in ends.found and key in starts.found]
    if not both and keys:
        raise no_leader_responds({**ends.problems, **starts.problems})
    share = _share(request.scan_limit if topic.selection.is_selective else request.limit, len(both))
    spans = {}
    for key in both:
        start, end, timed_offset = starts.found[key], ends.found[key], timed.get(key, -1)
        if request.order == NEWEST:
            spans[key.partition] = Span(start, _end(request.begin, start, end, timed_offset))
        else:
            spans[key.partition] = Span(_begin(request.begin, start, end, timed_offset, share), end)
    return spans


def _numbers(leaders: Leaders, request: PageRequest) -> Sequence[int]:
    name, partitions = request.topic.name, leaders.published.topics[request.topic.name].partitions
    if request.partition is None:
        if len(partitions) > PARTITIONS_MAX:
            raise Problem(
                400,
                "INVALID_REQUEST",
                f"{name} has {len(partitions)} partitions; at most {PARTITIONS_MAX} can be read together",
                what_to_do="Select one partition: ?partition=0",
            )
        return sorted(partitions)
    if request.partition not in partitions:
        detail = f"partition {request.partition} of {name} does not exist (number of partitions: {len(partitions)})"
        raise Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", detail)
    return [request.partition]


def _begin(begin: StartPosition, start_offset: int, end_offset: int, timed_offset: int, share: int) -> int:
    """Return the start of the range of a partition that is read forwards."""
    if begin.kind == "earliest":
        return start_offset
    if begin.kind == "latest":
        return max(start_offset, end_offset - share)
    if begin.kind == "timestamp":
        return timed_offset if timed_offset >= 0 else end_offset
    return max(start_offset, min(begin.value, end_offset))


def _end(begin: StartPosition, start_offset: int, end_offset: int, timed_offset: int) -> int:
    """Return the exclusive end of the range of a partition that is read backwards."""
    if begin.kind == "earliest":
        return start_offset
    if begin.kind == "latest":
        return end_offset
    if begin.kind == "timestamp":
        return timed_offset if timed_offset >= 0 else end_offset
    return max(start_offset, min(begin.value + 1, end_offset))


def _share(count: int, partitions: int) -> int:
    return -(-count // max(partitions, 1))
