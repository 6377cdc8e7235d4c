"""Time in us to parse and build frequent messages: kreplica's codec, handwritten ``struct`` code, and kafka-python.

The codec is compiled from the messages' schemas; the handwritten code (``by_hand``) has the same dicts as input and
output.  All run in turn.  Values are the lowest CPU time of all rounds, because other programs affect it least.
"""

from __future__ import annotations

import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.by_hand.fetch import (
    build_fetch_11,
    build_fetch_12,
    build_fetch_response_11,
    build_fetch_response_11_of_ranges,
    build_fetch_response_12,
    parse_fetch_11,
    parse_fetch_12,
    parse_fetch_response_11,
    parse_fetch_response_12,
)
from benchmarks.by_hand.leader_and_isr import (
    build_leader_and_isr_7,
    build_leader_and_isr_response_7,
    parse_leader_and_isr_7,
    parse_leader_and_isr_response_7,
)
from benchmarks.by_hand.list_offsets import (
    build_list_offsets_5,
    build_list_offsets_response_5,
    parse_list_offsets_5,
    parse_list_offsets_response_5,
)
from benchmarks.by_hand.metadata import (
    build_metadata_8,
    build_metadata_response_8,
    build_metadata_response_9,
    parse_metadata_8,
    parse_metadata_response_8,
    parse_metadata_response_9,
)
from benchmarks.by_hand.produce import (
    build_produce_7,
    build_produce_9,
    build_produce_response_7,
    parse_produce_7,
    parse_produce_9,
    parse_produce_response_7,
)
from benchmarks.by_hand.values import (
    Range,
    Value,
    fetch_request,
    fetch_response,
    leader_and_isr_request,
    leader_and_isr_response,
    list_offsets_request,
    list_offsets_response,
    metadata_request,
    metadata_response,
    produce_request,
    produce_response,
)
from kreplica.wire.messages import FETCH, LEADER_AND_ISR, LIST_OFFSETS, METADATA, PRODUCE
from kreplica.wire.schema import Schema

TURNS = {"quick": 7, "full": 25}
SECONDS_PER_TURN = 0.01
TIMES_MOST = 2.0


@dataclass(frozen=True)
class Case:
    """One message in one version.

    :param size: describes the number of partitions or topics.
    :param parse_by_hand: None for a message that is only built, into pieces that need not be bytes.
    """

    schema: Schema
    version: int
    size: str
    value: Value
    parse_by_hand: Callable[[bytes], Value] | None
    build_by_hand: Callable[[Value], Any]

    def __str__(self) -> str:
        return f"{self.schema.name} {self.version}, {self.size}"


def cases() -> Iterator[Case]:
    """Return the cases: each message in its old encoding, and in the flexible one if clients and brokers use it."""
    for count in (1, 10, 100):
        yield Case(PRODUCE.request, 7, f"{count} x 16 KiB", produce_request(count, 16384), parse_produce_7,
                   build_produce_7)  # fmt: skip
    yield Case(PRODUCE.request, 9, "1 x 16 KiB", produce_request(1, 16384), parse_produce_9, build_produce_9)
    for count in (1, 10, 100):
        yield Case(PRODUCE.response, 7, f"{count}", produce_response(count), parse_produce_response_7,
                   build_produce_response_7)  # fmt: skip
    for count in (1, 10, 100):
        yield Case(FETCH.request, 11, f"{count}", fetch_request(count, 11), parse_fetch_11, build_fetch_11)
    for count in (1, 100):
        yield Case(FETCH.request, 12, f"{count}", fetch_request(count, 12), parse_fetch_12, build_fetch_12)
    for count in (1, 10, 100):
        yield Case(FETCH.response, 11, f"{count} x 1 KiB", fetch_response(count, bytes(1024), 11),
                   parse_fetch_response_11, build_fetch_response_11)  # fmt: skip
    for count in (1, 100):
        yield Case(FETCH.response, 12, f"{count} x 1 KiB", fetch_response(count, bytes(1024), 12),
                   parse_fetch_response_12, build_fetch_response_12)  # fmt: skip
    for count in (1, 10, 100):
        yield Case(FETCH.response, 11, f"{count} ranges of files", fetch_response(count, Range(65536), 11), None,
                   build_fetch_response_11_of_ranges)  # fmt: skip
    for count in (1, 100):
        yield Case(LIST_OFFSETS.request, 5, f"{count}", list_offsets_request(count), parse_list_offsets_5,
                   build_list_offsets_5)  # fmt: skip
        yield Case(LIST_OFFSETS.response, 5, f"{count}", list_offsets_response(count), parse_list_offsets_response_5,
                   build_list_offsets_response_5)  # fmt: skip
    for count in (1, 10):
        yield Case(METADATA.request, 8, f"{count} topics", metadata_request(count), parse_metadata_8, build_metadata_8)
    for topics, partitions in ((1, 1), (10, 10)):
        size = f"{topics} x {partitions}"
        value = metadata_response(topics, partitions)
        yield Case(METADATA.response, 8, size, value, parse_metadata_response_8, build_metadata_response_8)
        yield Case(METADATA.response, 9, size, value, parse_metadata_response_9, build_metadata_response_9)
    yield Case(LEADER_AND_ISR.request, 7, "10 x 1,000", leader_and_isr_request(10, 1000), parse_leader_and_isr_7,
               build_leader_and_isr_7)  # fmt: skip
    yield Case(LEADER_AND_ISR.response, 7, "10 x 1,000", leader_and_isr_response(10, 1000),
               parse_leader_and_isr_response_7, build_leader_and_isr_response_7)  # fmt: skip


def microseconds(calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the CPU time of each call: the lowest of ``turns`` rounds."""
    timers = {name: timeit.Timer(call, timer=time.thread_time) for name, call in calls.items()}
    counts = {}
    for name, timer in timers.items():
        counts[name] = 1
        while timer.timeit(counts[name]) < SECONDS_PER_TURN:
            counts[name] *= 2
    times_us: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, timer in timers.items():
            times_us[name].append(timer.timeit(counts[name]) / counts[name] * 1e6)
    return {name: min(each) for name, each in times_us.items()}


def _peer(name: str) -> Any:
    """Return kafka-python's class for this message; None if it has none or is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.protocol.api_header import ResponseClassRegistry
            from kafka.protocol.api_message import ApiMessage

            known = ResponseClassRegistry._response_class_registry
            own = dict(known)
            try:
                return type(ApiMessage)(name, (ApiMessage,), {"__slots__": ()})
            finally:
                known.update(own)  # otherwise the class that its clients use would be deleted with the new one
    except (ImportError, FileNotFoundError):
        return None


def calls_of(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the operations on a message, by name."""
    schema, version, value = case.schema, case.version, case.value
    parse_by_hand, build_by_hand = case.parse_by_hand, case.build_by_hand
    if parse_by_hand is None:
        return {"build": lambda: schema.build_pieces(version, value), "build by hand": lambda: build_by_hand(value)}
    data = schema.build(version, value)
    parse, build = schema.parser(version), schema.builder(version)
    calls: dict[str, Callable[[], Any]] = {
        "parse": lambda: parse(data),
        "parse by hand": lambda: parse_by_hand(data),
        "build": lambda: build(value),
        "build by hand": lambda: build_by_hand(value),
    }
    peer = _peer(schema.name)
    if peer is not None:
        message = peer.decode(data, version)
        calls |= {"parse of peer": lambda: peer.decode(data, version), "build of peer": message.encode}
    return calls


def measure(case: Case, turns: int) -> dict[str, Any]:
    """Measure one case and return its row, with None for operations that the case or kafka-python does not have."""
    us = microseconds(calls_of(case), turns)
    times = {name: us[name] / us[f"{name} by hand"] for name in ("parse", "build") if name in us}
    return {
        "message": str(case),
        "parse us": us.get("parse"),
        "by hand": us.get("parse by hand"),
        "times": times.get("parse"),
        "kafka-python": us.get("parse of peer"),
        "build us": us["build"],
        "by hand ": us["build by hand"],
        "times ": times["build"],
        "kafka-python ": us.get("build of peer"),
        "target": f"<= {TIMES_MOST:g} times",
        "": "pass" if max(times.values()) <= TIMES_MOST else "missed",
    }


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure every case.

    :return: a row for each, in microseconds.
    """
    return [measure(case, TURNS[scale]) for case in cases()]
