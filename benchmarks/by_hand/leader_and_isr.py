"""LeaderAndIsr version 7, parsed and built by hand."""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from benchmarks.by_hand.pieces import (
    INT,
    SHORT,
    compact_ints,
    compact_text,
    put_compact_ints,
    put_compact_text,
    put_uvarint,
    uvarint,
)
from benchmarks.by_hand.values import Value

_HEAD, _PARTITION, _END, _ERROR = Struct(">i?iqb"), Struct(">iiii"), Struct(">?bx"), Struct(">ihx")


def parse_leader_and_isr_7(data: bytes) -> Value:
    head = _HEAD.unpack_from(data)
    count, position = uvarint(data, _HEAD.size)
    topics = []
    for _ in range(count - 1):
        name, position = compact_text(data, position)
        topic_id = UUID(bytes=data[position : position + 16])
        count, position = uvarint(data, position + 16)
        rows = []
        for _ in range(count - 1):
            index, controller_epoch, leader, leader_epoch = _PARTITION.unpack_from(data, position)
            isr, position = compact_ints(data, position + _PARTITION.size)
            partition_epoch = INT.unpack_from(data, position)[0]
            replicas, position = compact_ints(data, position + 4)
            adding, position = compact_ints(data, position)
            removing, position = compact_ints(data, position)
            is_new, recovery = _END.unpack_from(data, position)
            assert not data[position + 2]
            position += _END.size
            rows.append({"partition_index": index, "controller_epoch": controller_epoch, "leader": leader,
                         "leader_epoch": leader_epoch, "isr": isr, "partition_epoch": partition_epoch,
                         "replicas": replicas, "adding_replicas": adding, "removing_replicas": removing,
                         "is_new": is_new, "leader_recovery_state": recovery, "eligible_leader_replicas": [],
                         "read_only": False})  # fmt: skip
        topics.append({"topic_name": name, "topic_id": topic_id, "partition_states": rows})
        position += 1
    count, position = uvarint(data, position)
    leaders = []
    for _ in range(count - 1):
        broker = INT.unpack_from(data, position)[0]
        host, position = compact_text(data, position + 4)
        leaders.append({"broker_id": broker, "host_name": host, "port": INT.unpack_from(data, position)[0]})
        position += 5
    return {"controller_id": head[0], "is_k_raft_controller": head[1], "controller_epoch": head[2],
            "broker_epoch": head[3], "type": head[4], "topic_states": topics, "live_leaders": leaders,
            "command_number": -1}  # fmt: skip


def build_leader_and_isr_7(value: Value) -> bytes:
    out = [_HEAD.pack(value["controller_id"], value["is_k_raft_controller"], value["controller_epoch"],
                      value["broker_epoch"], value["type"]),
           put_uvarint(len(value["topic_states"]) + 1)]  # fmt: skip
    for topic in value["topic_states"]:
        rows = topic["partition_states"]
        out += (put_compact_text(topic["topic_name"]), topic["topic_id"].bytes, put_uvarint(len(rows) + 1))
        for row in rows:
            assert not row["eligible_leader_replicas"]
            assert not row["read_only"]
            out += (_PARTITION.pack(row["partition_index"], row["controller_epoch"], row["leader"],
                                    row["leader_epoch"]),
                    put_compact_ints(row["isr"]), INT.pack(row["partition_epoch"]), put_compact_ints(row["replicas"]),
                    put_compact_ints(row["adding_replicas"]), put_compact_ints(row["removing_replicas"]),
                    _END.pack(row["is_new"], row["leader_recovery_state"]))  # fmt: skip
        out.append(b"\0")
    out.append(put_uvarint(len(value["live_leaders"]) + 1))
    for leader in value["live_leaders"]:
        out += (INT.pack(leader["broker_id"]), put_compact_text(leader["host_name"]), INT.pack(leader["port"]), b"\0")
    assert value["command_number"] == -1
    out.append(b"\0")
    return b"".join(out)


def parse_leader_and_isr_response_7(data: bytes) -> Value:
    count, position = uvarint(data, 2)
    topics = []
    for _ in range(count - 1):
        topic_id = UUID(bytes=data[position : position + 16])
        count, position = uvarint(data, position + 16)
        end = position + (count - 1) * _ERROR.size
        rows = [{"partition_index": a, "error_code": b} for a, b in _ERROR.iter_unpack(data[position:end])]
        topics.append({"topic_id": topic_id, "partition_errors": rows})
        position = end + 1
    return {"error_code": SHORT.unpack_from(data)[0], "topics": topics}


def build_leader_and_isr_response_7(value: Value) -> bytes:
    out = [SHORT.pack(value["error_code"]), put_uvarint(len(value["topics"]) + 1)]
    for topic in value["topics"]:
        rows = topic["partition_errors"]
        out += (topic["topic_id"].bytes, put_uvarint(len(rows) + 1))
        out += [_ERROR.pack(row["partition_index"], row["error_code"]) for row in rows]
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)
