"""The measured messages, with all fields of their versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

Value = dict[str, Any]

TOPIC = "benchmark-topic"
NOT_REQUESTED = -(1 << 31)
"""Value for authorized operations that were not requested."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a file, which is sent separately."""

    size: int


def produce_request(partitions: int, records_size: int) -> Value:
    """Return a Produce request with one batch for each partition of one topic."""
    rows = [{"index": index, "records": bytes(records_size)} for index in range(partitions)]
    topic = {"name": TOPIC, "partition_data": rows}
    return {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}


def produce_response(partitions: int) -> Value:
    row = {"error_code": 0, "base_offset": 123_456, "log_append_time_ms": -1, "log_start_offset": 0}
    rows = [{"index": index, **row} for index in range(partitions)]
    return {"responses": [{"name": TOPIC, "partition_responses": rows}], "throttle_time_ms": 0}


def fetch_request(partitions: int, version: int) -> Value:
    """Return a Fetch request for all partitions of one topic."""
    row = {"current_leader_epoch": 7, "fetch_offset": 123_456, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    of_12 = {"last_fetched_epoch": -1} if version >= 12 else {}
    rows = [{"partition": index, **row, **of_12} for index in range(partitions)]
    return {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [{"topic": TOPIC, "partitions": rows}],
            "forgotten_topics_data": [], "rack_id": "", **({"cluster_id": None} if version >= 12 else {})}  # fmt: skip


def fetch_response(partitions: int, records: bytes | Range, version: int) -> Value:
    row: Value = {"error_code": 0, "high_watermark": 123_456, "last_stable_offset": 123_456, "log_start_offset": 0,
           "aborted_transactions": None, "preferred_read_replica": -1, "records": records}  # fmt: skip
    if version >= 12:
        row["diverging_epoch"] = {"epoch": -1, "end_offset": -1}
        row["current_leader"] = {"leader_id": -1, "leader_epoch": -1}
        row["snapshot_id"] = {"end_offset": -1, "epoch": -1}
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    topics = [{"topic": TOPIC, "partitions": rows}]
    return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": topics}


def list_offsets_request(partitions: int) -> Value:
    """Return a ListOffsets request for the end offsets of all partitions of one topic."""
    rows = [{"partition_index": index, "current_leader_epoch": 7, "timestamp": -1} for index in range(partitions)]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": rows}]}


def list_offsets_response(partitions: int) -> Value:
    row = {"error_code": 0, "timestamp": -1, "offset": 123_456, "leader_epoch": 7}
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    return {"throttle_time_ms": 0, "topics": [{"name": TOPIC, "partitions": rows}]}


def metadata_request(topics: int) -> Value:
    """Return a Metadata request for topics by name."""
    return {"topics": [{"name": f"topic-{index}"} for index in range(topics)], "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}  # fmt: skip


def metadata_response(topics: int, partitions: int) -> Value:
    """Return the metadata of three brokers, with a replica of each partition on all of them."""
    brokers = [{"node_id": node, "host": f"broker-{node}", "port": 9092, "rack": None} for node in range(3)]
    row = {"error_code": 0, "leader_id": 1, "leader_epoch": 4, "replica_nodes": [0, 1, 2], "isr_nodes": [0, 1, 2],
           "offline_replicas": []}  # fmt: skip
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    named = [{"error_code": 0, "name": f"topic-{index}", "is_internal": False, "partitions": rows,
              "topic_authorized_operations": NOT_REQUESTED} for index in range(topics)]  # fmt: skip
    return {"throttle_time_ms": 0, "brokers": brokers, "cluster_id": "cluster-of-a-benchmark", "controller_id": 0,
            "topics": named, "cluster_authorized_operations": NOT_REQUESTED}  # fmt: skip


def leader_and_isr_request(topics: int, partitions: int) -> Value:
    """Return a LeaderAndIsr request for all partitions, each on three brokers."""
    row = {"controller_epoch": 3, "leader": 1, "leader_epoch": 4, "isr": [0, 1, 2], "partition_epoch": 9,
           "replicas": [0, 1, 2], "adding_replicas": [], "removing_replicas": [], "is_new": False,
           "leader_recovery_state": 0, "eligible_leader_replicas": [], "read_only": False}  # fmt: skip
    rows = [{"partition_index": index, **row} for index in range(partitions)]
    states = [{"topic_name": f"topic-{index}", "topic_id": UUID(int=index + 1), "partition_states": rows}
              for index in range(topics)]  # fmt: skip
    leaders = [{"broker_id": node, "host_name": f"broker-{node}", "port": 9092} for node in range(3)]
    return {"controller_id": 1, "is_k_raft_controller": False, "controller_epoch": 3, "broker_epoch": 77, "type": 1,
            "topic_states": states, "live_leaders": leaders, "command_number": -1}  # fmt: skip


def leader_and_isr_response(topics: int, partitions: int) -> Value:
    rows = [{"partition_index": index, "error_code": 0} for index in range(partitions)]
    named = [{"topic_id": UUID(int=index + 1), "partition_errors": rows} for index in range(topics)]
    return {"error_code": 0, "topics": named}
