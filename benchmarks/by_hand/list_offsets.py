"""ListOffsets version 5, parsed and built by hand."""

from __future__ import annotations

from struct import Struct

from benchmarks.by_hand.pieces import INT, put_text, text
from benchmarks.by_hand.values import Value

_HEAD, _ROW, _ANSWER = Struct(">ibi"), Struct(">iiq"), Struct(">ihqqi")


def parse_list_offsets_5(data: bytes) -> Value:
    replica, isolation, count = _HEAD.unpack_from(data)
    position = _HEAD.size
    topics = []
    for _ in range(count):
        name, position = text(data, position)
        end = position + 4 + INT.unpack_from(data, position)[0] * _ROW.size
        rows = [{"partition_index": a, "current_leader_epoch": b, "timestamp": c}
                for a, b, c in _ROW.iter_unpack(data[position + 4 : end])]  # fmt: skip
        topics.append({"name": name, "partitions": rows})
        position = end
    return {"replica_id": replica, "isolation_level": isolation, "topics": topics}


def build_list_offsets_5(value: Value) -> bytes:
    out = [_HEAD.pack(value["replica_id"], value["isolation_level"], len(value["topics"]))]
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (put_text(topic["name"]), INT.pack(len(rows)))
        out += [_ROW.pack(row["partition_index"], row["current_leader_epoch"], row["timestamp"]) for row in rows]
    return b"".join(out)


def parse_list_offsets_response_5(data: bytes) -> Value:
    throttle, count = INT.unpack_from(data)[0], INT.unpack_from(data, 4)[0]
    position = 8
    topics = []
    for _ in range(count):
        name, position = text(data, position)
        end = position + 4 + INT.unpack_from(data, position)[0] * _ANSWER.size
        rows = [{"partition_index": a, "error_code": b, "timestamp": c, "offset": d, "leader_epoch": e}
                for a, b, c, d, e in _ANSWER.iter_unpack(data[position + 4 : end])]  # fmt: skip
        topics.append({"name": name, "partitions": rows})
        position = end
    return {"throttle_time_ms": throttle, "topics": topics}


def build_list_offsets_response_5(value: Value) -> bytes:
    out = [INT.pack(value["throttle_time_ms"]), INT.pack(len(value["topics"]))]
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (put_text(topic["name"]), INT.pack(len(rows)))
        out += [_ANSWER.pack(row["partition_index"], row["error_code"], row["timestamp"], row["offset"],
                             row["leader_epoch"]) for row in rows]  # fmt: skip
    return b"".join(out)
