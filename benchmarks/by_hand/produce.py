"""Produce versions 7 and 9, parsed and built by hand."""

from __future__ import annotations

from struct import Struct

from benchmarks.by_hand.pieces import INT, PAIR, compact_text, put_compact_text, put_text, put_uvarint, text, uvarint
from benchmarks.by_hand.values import Value

_PRODUCE_HEAD, _PRODUCE_ANSWER = Struct(">hii"), Struct(">ihqqq")


def parse_produce_7(data: bytes) -> Value:
    view = memoryview(data)
    transactional_id, position = text(data, 0)
    acks, timeout, count = _PRODUCE_HEAD.unpack_from(data, position)
    position += 10
    topics = []
    for _ in range(count):
        name, position = text(data, position)
        rows = []
        count = INT.unpack_from(data, position)[0]
        position += 4
        for _ in range(count):
            index, size = PAIR.unpack_from(data, position)
            end = position + 8 + size
            rows.append({"index": index, "records": view[position + 8 : end]})
            position = end
        topics.append({"name": name, "partition_data": rows})
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout, "topic_data": topics}


def build_produce_7(value: Value) -> bytes:
    topics = value["topic_data"]
    out = [put_text(value["transactional_id"]), _PRODUCE_HEAD.pack(value["acks"], value["timeout_ms"], len(topics))]
    for topic in topics:
        rows = topic["partition_data"]
        out += (put_text(topic["name"]), INT.pack(len(rows)))
        for row in rows:
            records = row["records"]
            out += (PAIR.pack(row["index"], len(records)), records)
    return b"".join(out)


def parse_produce_9(data: bytes) -> Value:
    view = memoryview(data)
    transactional_id, position = compact_text(data, 0)
    acks, timeout = Struct(">hi").unpack_from(data, position)
    count, position = uvarint(data, position + 6)
    topics = []
    for _ in range(count - 1):
        name, position = compact_text(data, position)
        rows = []
        count, position = uvarint(data, position)
        for _ in range(count - 1):
            index = INT.unpack_from(data, position)[0]
            size, position = uvarint(data, position + 4)
            end = position + size - 1
            rows.append({"index": index, "records": view[position:end]})
            position = end + 1
        topics.append({"name": name, "partition_data": rows})
        position += 1
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout, "topic_data": topics}


def build_produce_9(value: Value) -> bytes:
    topics = value["topic_data"]
    out = [put_compact_text(value["transactional_id"]), Struct(">hi").pack(value["acks"], value["timeout_ms"]),
           put_uvarint(len(topics) + 1)]  # fmt: skip
    for topic in topics:
        rows = topic["partition_data"]
        out += (put_compact_text(topic["name"]), put_uvarint(len(rows) + 1))
        for row in rows:
            records = row["records"]
            out += (INT.pack(row["index"]), put_uvarint(len(records) + 1), records, b"\0")
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)


def parse_produce_response_7(data: bytes) -> Value:
    position = 4
    topics = []
    for _ in range(INT.unpack_from(data)[0]):
        name, position = text(data, position)
        end = position + 4 + INT.unpack_from(data, position)[0] * _PRODUCE_ANSWER.size
        rows = [{"index": a, "error_code": b, "base_offset": c, "log_append_time_ms": d, "log_start_offset": e}
                for a, b, c, d, e in _PRODUCE_ANSWER.iter_unpack(data[position + 4 : end])]  # fmt: skip
        topics.append({"name": name, "partition_responses": rows})
        position = end
    return {"responses": topics, "throttle_time_ms": INT.unpack_from(data, position)[0]}


def build_produce_response_7(value: Value) -> bytes:
    out = [INT.pack(len(value["responses"]))]
    for topic in value["responses"]:
        rows = topic["partition_responses"]
        out += (put_text(topic["name"]), INT.pack(len(rows)))
        out += [_PRODUCE_ANSWER.pack(row["index"], row["error_code"], row["base_offset"], row["log_append_time_ms"],
                                     row["log_start_offset"]) for row in rows]  # fmt: skip
    out.append(INT.pack(value["throttle_time_ms"]))
    return b"".join(out)
