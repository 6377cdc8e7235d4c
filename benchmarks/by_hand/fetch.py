"""Fetch versions 11 and 12, parsed and built by hand."""

from __future__ import annotations

from struct import Struct
from typing import Any

from benchmarks.by_hand.pieces import (
    INT,
    compact_ints,
    compact_text,
    ints,
    put_compact_ints,
    put_compact_text,
    put_ints,
    put_text,
    put_uvarint,
    text,
    uvarint,
)
from benchmarks.by_hand.values import Value

_FETCH_HEAD, _FETCH_ROW = Struct(">iiiibiii"), Struct(">iiqqi")
_FETCH_HEAD_12, _FETCH_ROW_12 = Struct(">iiiibii"), Struct(">iiqiqix")
_FETCH_ANSWER_HEAD, _FETCH_ANSWER = Struct(">ihii"), Struct(">ihqqqiii")
_FETCH_ANSWER_HEAD_12, _FETCH_ANSWER_12 = Struct(">ihi"), Struct(">ihqqqBi")


def _fetch(head: tuple[Any, ...], topics: list[Value], forgotten: list[Value], rack: str | None) -> Value:
    return {"replica_id": head[0], "max_wait_ms": head[1], "min_bytes": head[2], "max_bytes": head[3],
            "isolation_level": head[4], "session_id": head[5], "session_epoch": head[6], "topics": topics,
            "forgotten_topics_data": forgotten, "rack_id": rack}  # fmt: skip


def parse_fetch_11(data: bytes) -> Value:
    head = _FETCH_HEAD.unpack_from(data)
    position = _FETCH_HEAD.size
    topics = []
    for _ in range(head[7]):
        name, position = text(data, position)
        end = position + 4 + INT.unpack_from(data, position)[0] * _FETCH_ROW.size
        rows = [{"partition": a, "current_leader_epoch": b, "fetch_offset": c, "log_start_offset": d,
                 "partition_max_bytes": e}
                for a, b, c, d, e in _FETCH_ROW.iter_unpack(data[position + 4 : end])]  # fmt: skip
        topics.append({"topic": name, "partitions": rows})
        position = end
    forgotten = []
    count = INT.unpack_from(data, position)[0]
    position += 4
    for _ in range(count):
        name, position = text(data, position)
        numbers, position = ints(data, position)
        forgotten.append({"topic": name, "partitions": numbers})
    rack, position = text(data, position)
    return _fetch(head, topics, forgotten, rack)


def _put_fetch_head(value: Value) -> tuple[Any, ...]:
    return (value["replica_id"], value["max_wait_ms"], value["min_bytes"], value["max_bytes"],
            value["isolation_level"], value["session_id"], value["session_epoch"])  # fmt: skip


def build_fetch_11(value: Value) -> bytes:
    out = [_FETCH_HEAD.pack(*_put_fetch_head(value), len(value["topics"]))]
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (put_text(topic["topic"]), INT.pack(len(rows)))
        out += [_FETCH_ROW.pack(row["partition"], row["current_leader_epoch"], row["fetch_offset"],
                                row["log_start_offset"], row["partition_max_bytes"]) for row in rows]  # fmt: skip
    out.append(INT.pack(len(value["forgotten_topics_data"])))
    for topic in value["forgotten_topics_data"]:
        out += (put_text(topic["topic"]), put_ints(topic["partitions"]))
    out.append(put_text(value["rack_id"]))
    return b"".join(out)


def parse_fetch_12(data: bytes) -> Value:
    head = _FETCH_HEAD_12.unpack_from(data)
    count, position = uvarint(data, _FETCH_HEAD_12.size)
    topics = []
    for _ in range(count - 1):
        name, position = compact_text(data, position)
        count, position = uvarint(data, position)
        end = position + (count - 1) * _FETCH_ROW_12.size
        rows = [{"partition": a, "current_leader_epoch": b, "fetch_offset": c, "last_fetched_epoch": d,
                 "log_start_offset": e, "partition_max_bytes": f}
                for a, b, c, d, e, f in _FETCH_ROW_12.iter_unpack(data[position:end])]  # fmt: skip
        topics.append({"topic": name, "partitions": rows})
        position = end + 1
    forgotten = []
    count, position = uvarint(data, position)
    for _ in range(count - 1):
        name, position = compact_text(data, position)
        numbers, position = compact_ints(data, position)
        forgotten.append({"topic": name, "partitions": numbers})
        position += 1
    rack, position = compact_text(data, position)
    assert not data[position]
    value = _fetch(head, topics, forgotten, rack)
    value["cluster_id"] = None
    return value


def build_fetch_12(value: Value) -> bytes:
    out = [_FETCH_HEAD_12.pack(*_put_fetch_head(value)), put_uvarint(len(value["topics"]) + 1)]
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (put_compact_text(topic["topic"]), put_uvarint(len(rows) + 1))
        out += [_FETCH_ROW_12.pack(row["partition"], row["current_leader_epoch"], row["fetch_offset"],
                                   row["last_fetched_epoch"], row["log_start_offset"], row["partition_max_bytes"])
                for row in rows]  # fmt: skip
        out.append(b"\0")
    out.append(put_uvarint(len(value["forgotten_topics_data"]) + 1))
    for topic in value["forgotten_topics_data"]:
        out += (put_compact_text(topic["topic"]), put_compact_ints(topic["partitions"]), b"\0")
    out += (put_compact_text(value["rack_id"]), b"\0")
    return b"".join(out)


def parse_fetch_response_11(data: bytes) -> Value:
    view = memoryview(data)
    throttle, error, session, count = _FETCH_ANSWER_HEAD.unpack_from(data)
    position = _FETCH_ANSWER_HEAD.size
    topics = []
    for _ in range(count):
        name, position = text(data, position)
        count = INT.unpack_from(data, position)[0]
        position += 4
        rows = []
        for _ in range(count):
            index, code, high, stable, start, aborted, replica, size = _FETCH_ANSWER.unpack_from(data, position)
            assert aborted == -1
            position += _FETCH_ANSWER.size
            end = position + size
            rows.append({"partition_index": index, "error_code": code, "high_watermark": high,
                         "last_stable_offset": stable, "log_start_offset": start, "aborted_transactions": None,
                         "preferred_read_replica": replica, "records": view[position:end]})  # fmt: skip
            position = end
        topics.append({"topic": name, "partitions": rows})
    return {"throttle_time_ms": throttle, "error_code": error, "session_id": session, "responses": topics}


def build_fetch_response_11(value: Value) -> bytes:
    topics = value["responses"]
    head = (value["throttle_time_ms"], value["error_code"], value["session_id"], len(topics))
    out = [_FETCH_ANSWER_HEAD.pack(*head)]
    for topic in topics:
        rows = topic["partitions"]
        out += (put_text(topic["topic"]), INT.pack(len(rows)))
        for row in rows:
            records = row["records"]
            assert row["aborted_transactions"] is None
            out += (_FETCH_ANSWER.pack(row["partition_index"], row["error_code"], row["high_watermark"],
                                       row["last_stable_offset"], row["log_start_offset"], -1,
                                       row["preferred_read_replica"], len(records)), records)  # fmt: skip
    return b"".join(out)


def build_fetch_response_11_of_ranges(value: Value) -> list[Any]:
    """Return the bytes before each range, and the ranges."""
    topics = value["responses"]
    head = (value["throttle_time_ms"], value["error_code"], value["session_id"], len(topics))
    pieces: list[Any] = []
    out = [_FETCH_ANSWER_HEAD.pack(*head)]
    for topic in topics:
        rows = topic["partitions"]
        out += (put_text(topic["topic"]), INT.pack(len(rows)))
        for row in rows:
            records = row["records"]
            assert row["aborted_transactions"] is None
            out.append(_FETCH_ANSWER.pack(row["partition_index"], row["error_code"], row["high_watermark"],
                                          row["last_stable_offset"], row["log_start_offset"], -1,
                                          row["preferred_read_replica"], records.size))  # fmt: skip
            pieces += (b"".join(out), records)
            out = []
    return pieces


def parse_fetch_response_12(data: bytes) -> Value:
    view = memoryview(data)
    throttle, error, session = _FETCH_ANSWER_HEAD_12.unpack_from(data)
    count, position = uvarint(data, _FETCH_ANSWER_HEAD_12.size)
    topics = []
    for _ in range(count - 1):
        name, position = compact_text(data, position)
        count, position = uvarint(data, position)
        rows = []
        for _ in range(count - 1):
            index, code, high, stable, start, aborted, replica = _FETCH_ANSWER_12.unpack_from(data, position)
            assert not aborted
            size, position = uvarint(data, position + _FETCH_ANSWER_12.size)
            end = position + size - 1
            rows.append({"partition_index": index, "error_code": code, "high_watermark": high,
                         "last_stable_offset": stable, "log_start_offset": start, "aborted_transactions": None,
                         "preferred_read_replica": replica, "records": view[position:end],
                         "diverging_epoch": {"epoch": -1, "end_offset": -1},
                         "current_leader": {"leader_id": -1, "leader_epoch": -1},
                         "snapshot_id": {"end_offset": -1, "epoch": -1}})  # fmt: skip
            assert not data[end]
            position = end + 1
        topics.append({"topic": name, "partitions": rows})
        position += 1
    return {"throttle_time_ms": throttle, "error_code": error, "session_id": session, "responses": topics}


def build_fetch_response_12(value: Value) -> bytes:
    topics = value["responses"]
    head = (value["throttle_time_ms"], value["error_code"], value["session_id"])
    out = [_FETCH_ANSWER_HEAD_12.pack(*head), put_uvarint(len(topics) + 1)]
    for topic in topics:
        rows = topic["partitions"]
        out += (put_compact_text(topic["topic"]), put_uvarint(len(rows) + 1))
        for row in rows:
            records = row["records"]
            assert row["aborted_transactions"] is None
            assert row["diverging_epoch"]["epoch"] == row["current_leader"]["leader_id"] == -1
            assert row["snapshot_id"]["epoch"] == -1
            out += (_FETCH_ANSWER_12.pack(row["partition_index"], row["error_code"], row["high_watermark"],
                                          row["last_stable_offset"], row["log_start_offset"], 0,
                                          row["preferred_read_replica"]),
                    put_uvarint(len(records) + 1), records, b"\0")  # fmt: skip
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)
