"""Microseconds to parse and to build messages: this codec, hand-written ``struct`` code, and kafka-python's.

Run it with ``python -m benchmarks.codec``; it takes about a quarter of a minute.  Hand-written parsers come in two
kinds: one that gives dicts as this codec does, and one that gives bare tuples, which is the floor for Python.
"""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable
from struct import Struct
from typing import Any

from kreplica.wire.messages import APIS
from kreplica.wire.schema import Schema

REPEATS = 5
SECONDS_PER_REPEAT = 0.012

Value = dict[str, Any]


def microseconds(call: Callable[..., Any], *arguments: Any) -> float:
    """Time of one call: the best of a few repeats, since that is what neighbours disturb least."""
    timer = timeit.Timer("call(*arguments)", globals={"call": call, "arguments": arguments})
    count = 1
    while timer.timeit(count) < SECONDS_PER_REPEAT:
        count *= 2
    return min(timer.repeat(REPEATS, count)) / count * 1e6


def produce_request(partitions: int, records_size: int) -> Value:
    """A produce of one batch to each partition of one topic."""
    rows = [{"index": index, "records": bytes(records_size)} for index in range(partitions)]
    topic = {"name": "benchmark-topic", "partition_data": rows}
    return {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}


def produce_response(partitions: int) -> Value:
    """The answer to it."""
    row = {"error_code": 0, "base_offset": 123_456, "log_append_time_ms": -1, "log_start_offset": 0}
    rows = [{"index": index, **row} for index in range(partitions)]
    return {"responses": [{"name": "benchmark-topic", "partition_responses": rows}], "throttle_time_ms": 0}


def fetch_request(partitions: int) -> Value:
    """A fetch of all partitions of one topic, with all fields of versions 11 and 12."""
    row = {"current_leader_epoch": 7, "fetch_offset": 123_456, "last_fetched_epoch": -1, "log_start_offset": -1,
           "partition_max_bytes": 1 << 20}  # fmt: skip
    rows = [{"partition": index, **row} for index in range(partitions)]
    return {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [{"topic": "benchmark-topic", "partitions": rows}],
            "forgotten_topics_data": [], "rack_id": ""}  # fmt: skip


def fetch_response(partitions: int, records_size: int) -> Value:
    """The answer to it."""
    row = {"error_code": 0, "high_watermark": 123_456, "last_stable_offset": 123_456, "log_start_offset": 0,
           "aborted_transactions": None, "preferred_read_replica": -1, "records": bytes(records_size)}  # fmt: skip
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    topics = [{"topic": "benchmark-topic", "partitions": rows}]
    return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": topics}


def metadata_response(topics: int, partitions: int) -> Value:
    """A cluster of three brokers, each partition on all of them."""
    brokers = [{"node_id": node, "host": f"broker-{node}", "port": 9092, "rack": None} for node in range(3)]
    row = {"error_code": 0, "leader_id": 1, "leader_epoch": 4, "replica_nodes": [0, 1, 2], "isr_nodes": [0, 1, 2],
           "offline_replicas": []}  # fmt: skip
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    named = [{"error_code": 0, "name": f"topic-{index}", "is_internal": False, "partitions": rows,
              "topic_authorized_operations": -(1 << 31)} for index in range(topics)]  # fmt: skip
    return {"throttle_time_ms": 0, "brokers": brokers, "cluster_id": "cluster-of-a-benchmark", "controller_id": 0,
            "topics": named, "cluster_authorized_operations": -(1 << 31)}  # fmt: skip


_INT16, _INT32, _INT32_PAIR = Struct(">h"), Struct(">i"), Struct(">ii")
_PRODUCE_HEAD, _FETCH_HEAD, _FETCH_ROW = Struct(">hii"), Struct(">iiiibiii"), Struct(">iiqqi")
_PRODUCE_ANSWER, _FETCH_ANSWER = Struct(">ihqqq"), Struct(">ihqqqiii")


def hand_produce(data: bytes, as_dicts: bool) -> Any:
    """Parse a Produce request 7 by hand."""
    view = memoryview(data)
    length = _INT16.unpack_from(data)[0]
    position = 2 + max(length, 0)
    transactional_id = data[2:position].decode() if length >= 0 else None
    acks, timeout, topics = _PRODUCE_HEAD.unpack_from(data, position)
    position += 10
    parsed = []
    for _ in range(topics):
        end = position + 2 + _INT16.unpack_from(data, position)[0]
        name = data[position + 2 : end].decode()
        rows = []
        position = end + 4
        for _ in range(_INT32.unpack_from(data, end)[0]):
            index, size = _INT32_PAIR.unpack_from(data, position)
            end = position + 8 + size
            records = view[position + 8 : end]
            rows.append({"index": index, "records": records} if as_dicts else (index, records))
            position = end
        parsed.append({"name": name, "partition_data": rows} if as_dicts else (name, rows))
    if as_dicts:
        return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout, "topic_data": parsed}
    return transactional_id, acks, timeout, parsed


def hand_fetch(data: bytes, as_dicts: bool) -> Any:
    """Parse a Fetch request 11 by hand, as far as its topics."""
    head = _FETCH_HEAD.unpack_from(data)
    position = _FETCH_HEAD.size
    parsed = []
    for _ in range(head[-1]):
        end = position + 2 + _INT16.unpack_from(data, position)[0]
        name = data[position + 2 : end].decode()
        position = end + 4 + _INT32.unpack_from(data, end)[0] * _FETCH_ROW.size
        rows: Any = _FETCH_ROW.iter_unpack(data[end + 4 : position])
        if as_dicts:
            rows = [{"partition": a, "current_leader_epoch": b, "fetch_offset": c, "log_start_offset": d,
                     "partition_max_bytes": e} for a, b, c, d, e in rows]  # fmt: skip
        parsed.append({"topic": name, "partitions": rows} if as_dicts else (name, list(rows)))
    if as_dicts:
        replica, wait, least, most, isolation, session, epoch, _ = head
        return {"replica_id": replica, "max_wait_ms": wait, "min_bytes": least, "max_bytes": most,
                "isolation_level": isolation, "session_id": session, "session_epoch": epoch, "topics": parsed,
                "forgotten_topics_data": [], "rack_id": ""}  # fmt: skip
    return head, parsed


def hand_produce_response(value: Value) -> bytes:
    """Build a Produce response 7 by hand, from the same dicts."""
    out = [_INT32.pack(len(value["responses"]))]
    for topic in value["responses"]:
        name = topic["name"].encode()
        rows = topic["partition_responses"]
        out += (_INT16.pack(len(name)), name, _INT32.pack(len(rows)))
        out += [_PRODUCE_ANSWER.pack(row["index"], row["error_code"], row["base_offset"], row["log_append_time_ms"],
                                     row["log_start_offset"]) for row in rows]  # fmt: skip
    out.append(_INT32.pack(value["throttle_time_ms"]))
    return b"".join(out)


def hand_fetch_response(value: Value) -> bytes:
    """Build a Fetch response 11 by hand, from the same dicts, all of which have no aborted transactions."""
    out = [Struct(">ihii").pack(value["throttle_time_ms"], value["error_code"], value["session_id"],
                                len(value["responses"]))]  # fmt: skip
    for topic in value["responses"]:
        name = topic["topic"].encode()
        out += (_INT16.pack(len(name)), name, _INT32.pack(len(topic["partitions"])))
        for row in topic["partitions"]:
            records = row["records"]
            out += (_FETCH_ANSWER.pack(row["partition_index"], row["error_code"], row["high_watermark"],
                                       row["last_stable_offset"], row["log_start_offset"], -1,
                                       row["preferred_read_replica"], len(records)), records)  # fmt: skip
    return b"".join(out)


HandParser = Callable[[bytes, bool], Any]
HandBuilder = Callable[[Value], bytes]

CASES: list[tuple[str, Schema, int, Value, HandParser | None, HandBuilder | None]] = [
    *[(f"Produce request v7, {n} x 16 KiB", APIS[0].request, 7, produce_request(n, 16384), hand_produce, None)
      for n in (1, 10, 100)],
    ("Produce request v9, 1 x 16 KiB", APIS[0].request, 9, produce_request(1, 16384), None, None),
    *[(f"Produce response v7, {n}", APIS[0].response, 7, produce_response(n), None, hand_produce_response)
      for n in (1, 10, 100)],
    *[(f"Fetch request v11, {n}", APIS[1].request, 11, fetch_request(n), hand_fetch, None) for n in (1, 10, 100)],
    ("Fetch request v12, 10", APIS[1].request, 12, fetch_request(10), None, None),
    *[(f"Fetch response v11, {n} x 1 KiB", APIS[1].response, 11, fetch_response(n, 1024), None, hand_fetch_response)
      for n in (1, 10, 100)],
    ("Fetch response v11, 1 x 64 KiB", APIS[1].response, 11, fetch_response(1, 65536), None, hand_fetch_response),
    ("Fetch response v12, 10 x 1 KiB", APIS[1].response, 12, fetch_response(10, 1024), None, None),
    ("Metadata response v8, 10 x 10", APIS[3].response, 8, metadata_response(10, 10), None, None),
    ("Metadata response v9, 10 x 10", APIS[3].response, 9, metadata_response(10, 10), None, None),
]  # fmt: skip


COLUMNS = {
    "parse_us": "parse",
    "hand_parse_us": "hand",
    "hand_parse_tuples_us": "tuples",
    "peer_parse_us": "peer",
    "build_us": "build",
    "pieces_us": "pieces",
    "hand_build_us": "hand",
    "peer_build_us": "peer",
}
"""What a row holds, with the short names of the printed table."""


def _peer(name: str) -> Any:
    """kafka-python's class of that message, or None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.protocol.api_message import ApiMessage

            return type(ApiMessage)(name, (ApiMessage,), {"__slots__": ()})
    except ImportError:
        return None


def measure(
    title: str, schema: Schema, version: int, value: Value, by_hand: HandParser | None, hand_builder: HandBuilder | None
) -> dict[str, Any]:
    """Measure one case; give its row."""
    data = schema.build(version, value)
    row: dict[str, Any] = dict.fromkeys(("message", "size_bytes", *COLUMNS))
    row |= {
        "message": title,
        "size_bytes": len(data),
        "parse_us": microseconds(schema.parser(version), data),
        "build_us": microseconds(schema.builder(version), value),
        "pieces_us": microseconds(schema.build_pieces, version, value),
    }
    if by_hand is not None:
        assert by_hand(data, True) == schema.parse(version, data)
        row["hand_parse_us"] = microseconds(by_hand, data, True)
        row["hand_parse_tuples_us"] = microseconds(by_hand, data, False)
    if hand_builder is not None:
        assert hand_builder(value) == data
        row["hand_build_us"] = microseconds(hand_builder, value)
    peer = _peer(schema.name)
    if peer is not None:
        row["peer_parse_us"] = microseconds(peer.decode, data, version)
        row["peer_build_us"] = microseconds(peer.decode(data, version).encode)
    return row


def run() -> list[dict[str, Any]]:
    """Measure every case.

    :return: a row for each with the message, its size in bytes and microseconds; None is what a case does not have.
    """
    return [measure(*case) for case in CASES]


def main() -> None:
    """Print the table."""
    print(f"{'microseconds':<34}" + "".join(f"{name:>9}" for name in COLUMNS.values()))
    for row in run():
        cells = ("-" if row[column] is None else f"{row[column]:.2f}" for column in COLUMNS)
        print(f"{row['message']:<34}" + "".join(f"{cell:>9}" for cell in cells))


if __name__ == "__main__":
    main()
