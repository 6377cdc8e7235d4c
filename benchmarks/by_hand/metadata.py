"""Metadata versions 8 and 9, parsed and built by hand."""

from __future__ import annotations

from struct import Struct
from typing import Any

from benchmarks.by_hand.pieces import (
    INT,
    PAIR,
    SHORT,
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

_FLAGS, _PARTITION = Struct(">???"), Struct(">hiii")


def parse_metadata_8(data: bytes) -> Value:
    count = INT.unpack_from(data)[0]
    position = 4
    topics = []
    for _ in range(count):
        name, position = text(data, position)
        topics.append({"name": name})
    create, of_cluster, of_topics = _FLAGS.unpack_from(data, position)
    return {"topics": None if count < 0 else topics, "allow_auto_topic_creation": create,
            "include_cluster_authorized_operations": of_cluster,
            "include_topic_authorized_operations": of_topics}  # fmt: skip


def build_metadata_8(value: Value) -> bytes:
    topics = value["topics"]
    out = [INT.pack(-1 if topics is None else len(topics))]
    out += [put_text(topic["name"]) for topic in topics or ()]
    out.append(_FLAGS.pack(value["allow_auto_topic_creation"], value["include_cluster_authorized_operations"],
                           value["include_topic_authorized_operations"]))  # fmt: skip
    return b"".join(out)


def parse_metadata_response_8(data: bytes) -> Value:
    throttle, count = PAIR.unpack_from(data)
    position = 8
    brokers = []
    for _ in range(count):
        node = INT.unpack_from(data, position)[0]
        host, position = text(data, position + 4)
        port = INT.unpack_from(data, position)[0]
        rack, position = text(data, position + 4)
        brokers.append({"node_id": node, "host": host, "port": port, "rack": rack})
    cluster, position = text(data, position)
    controller, count = PAIR.unpack_from(data, position)
    position += 8
    topics = []
    for _ in range(count):
        error = SHORT.unpack_from(data, position)[0]
        name, position = text(data, position + 2)
        internal = data[position] != 0
        count = INT.unpack_from(data, position + 1)[0]
        position += 5
        rows = []
        for _ in range(count):
            code, index, leader, epoch = _PARTITION.unpack_from(data, position)
            replicas, position = ints(data, position + _PARTITION.size)
            isr, position = ints(data, position)
            offline, position = ints(data, position)
            rows.append(_partition(code, index, leader, epoch, replicas, isr, offline))
        topics.append({"error_code": error, "name": name, "is_internal": internal, "partitions": rows,
                       "topic_authorized_operations": INT.unpack_from(data, position)[0]})  # fmt: skip
        position += 4
    return _response(throttle, brokers, cluster, controller, topics, INT.unpack_from(data, position)[0])


def _partition(
    code: int, index: int, leader: int, epoch: int, replicas: list[int], isr: list[int], offline: list[int]
) -> Value:
    return {"error_code": code, "partition_index": index, "leader_id": leader, "leader_epoch": epoch,
            "replica_nodes": replicas, "isr_nodes": isr, "offline_replicas": offline}  # fmt: skip


def _response(
    throttle: int, brokers: list[Value], cluster: str | None, controller: int, topics: list[Value], operations: int
) -> Value:
    return {"throttle_time_ms": throttle, "brokers": brokers, "cluster_id": cluster, "controller_id": controller,
            "topics": topics, "cluster_authorized_operations": operations}  # fmt: skip


def build_metadata_response_8(value: Value) -> bytes:
    out = [PAIR.pack(value["throttle_time_ms"], len(value["brokers"]))]
    for broker in value["brokers"]:
        out += (INT.pack(broker["node_id"]), put_text(broker["host"]), INT.pack(broker["port"]),
                put_text(broker["rack"]))  # fmt: skip
    out += (put_text(value["cluster_id"]), PAIR.pack(value["controller_id"], len(value["topics"])))
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (SHORT.pack(topic["error_code"]), put_text(topic["name"]),
                Struct(">?i").pack(topic["is_internal"], len(rows)))  # fmt: skip
        for row in rows:
            out += (_put_partition(row), put_ints(row["replica_nodes"]), put_ints(row["isr_nodes"]),
                    put_ints(row["offline_replicas"]))  # fmt: skip
        out.append(INT.pack(topic["topic_authorized_operations"]))
    out.append(INT.pack(value["cluster_authorized_operations"]))
    return b"".join(out)


def _put_partition(row: Value) -> bytes:
    return _PARTITION.pack(row["error_code"], row["partition_index"], row["leader_id"], row["leader_epoch"])


def parse_metadata_response_9(data: bytes) -> Value:
    throttle = INT.unpack_from(data)[0]
    count, position = uvarint(data, 4)
    brokers: list[Any] = []
    for _ in range(count - 1):
        node = INT.unpack_from(data, position)[0]
        host, position = compact_text(data, position + 4)
        port = INT.unpack_from(data, position)[0]
        rack, position = compact_text(data, position + 4)
        brokers.append({"node_id": node, "host": host, "port": port, "rack": rack})
        position += 1
    cluster, position = compact_text(data, position)
    controller = INT.unpack_from(data, position)[0]
    count, position = uvarint(data, position + 4)
    topics = []
    for _ in range(count - 1):
        error = SHORT.unpack_from(data, position)[0]
        name, position = compact_text(data, position + 2)
        internal = data[position] != 0
        count, position = uvarint(data, position + 1)
        rows = []
        for _ in range(count - 1):
            code, index, leader, epoch = _PARTITION.unpack_from(data, position)
            replicas, position = compact_ints(data, position + _PARTITION.size)
            isr, position = compact_ints(data, position)
            offline, position = compact_ints(data, position)
            rows.append(_partition(code, index, leader, epoch, replicas, isr, offline))
            position += 1
        topics.append({"error_code": error, "name": name, "is_internal": internal, "partitions": rows,
                       "topic_authorized_operations": INT.unpack_from(data, position)[0]})  # fmt: skip
        position += 5
    return _response(throttle, brokers, cluster, controller, topics, INT.unpack_from(data, position)[0])


def build_metadata_response_9(value: Value) -> bytes:
    out = [INT.pack(value["throttle_time_ms"]), put_uvarint(len(value["brokers"]) + 1)]
    for broker in value["brokers"]:
        out += (INT.pack(broker["node_id"]), put_compact_text(broker["host"]), INT.pack(broker["port"]),
                put_compact_text(broker["rack"]), b"\0")  # fmt: skip
    out += (put_compact_text(value["cluster_id"]), INT.pack(value["controller_id"]),
            put_uvarint(len(value["topics"]) + 1))  # fmt: skip
    for topic in value["topics"]:
        rows = topic["partitions"]
        out += (SHORT.pack(topic["error_code"]), put_compact_text(topic["name"]),
                b"\1" if topic["is_internal"] else b"\0", put_uvarint(len(rows) + 1))  # fmt: skip
        for row in rows:
            out += (_put_partition(row), put_compact_ints(row["replica_nodes"]), put_compact_ints(row["isr_nodes"]),
                    put_compact_ints(row["offline_replicas"]), b"\0")  # fmt: skip
        out += (INT.pack(topic["topic_authorized_operations"]), b"\0")
    out += (INT.pack(value["cluster_authorized_operations"]), b"\0")
    return b"".join(out)
