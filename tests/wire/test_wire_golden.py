"""Golden bytes of messages, written by hand from the protocol's documentation, with a comment for each field."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kreplica.wire.messages import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    LEADER_AND_ISR,
    METADATA,
    PRODUCE,
    UPDATE_METADATA,
)
from kreplica.wire.schema import Schema

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

# fmt: off
CASES: list[tuple[Schema, int, str, dict[str, Any]]] = [
    (PRODUCE.request, 7, """
        0003 747831         # transactional_id "tx1"
        ffff                # acks -1
        00007530            # timeout_ms 30000
        00000001            # topic_data: 1
        0001 74             #   name "t"
        00000002            #   partition_data: 2
        00000003            #     index 3
        00000002 beef       #     records: 2 bytes
        00000004            #     index 4
        ffffffff            #     records: null
    """, {"transactional_id": "tx1", "acks": -1, "timeout_ms": 30_000, "topic_data": [
        {"name": "t", "partition_data": [{"index": 3, "records": b"\xbe\xef"}, {"index": 4, "records": None}]}]}),
    (PRODUCE.request, 9, """
        00                  # transactional_id null
        0001                # acks 1
        000003e8            # timeout_ms 1000
        02                  # topic_data: 1
        02 74               #   name "t"
        02                  #   partition_data: 1
        00000003            #     index 3
        8101                #     records: 128 bytes
        """ + "ab" * 128 + """
        00                  #     no tags
        00                  #   no tags
        00                  # no tags
    """, {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": [
        {"name": "t", "partition_data": [{"index": 3, "records": b"\xab" * 128}]}]}),
    (PRODUCE.response, 8, """
        00000001            # responses: 1
        0001 74             #   name "t"
        00000001            #   partition_responses: 1
        00000003            #     index 3
        0057                #     error_code 87
        ffffffffffffffff    #     base_offset -1
        ffffffffffffffff    #     log_append_time_ms -1
        0000000000000005    #     log_start_offset 5
        00000001            #     record_errors: 1
        00000002            #       batch_index 2
        ffff                #       batch_index_error_message null
        0003 626164         #     error_message "bad"
        00000010            # throttle_time_ms 16
    """, {"responses": [{"name": "t", "partition_responses": [
        {"index": 3, "error_code": 87, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": 5,
         "record_errors": [{"batch_index": 2, "batch_index_error_message": None}], "error_message": "bad"}]}],
        "throttle_time_ms": 16}),
    (PRODUCE.response, 10, """
        02                  # responses: 1
        02 74               #   name "t"
        02                  #   partition_responses: 1
        00000003            #     index 3
        0006                #     error_code 6
        ffffffffffffffff    #     base_offset -1
        ffffffffffffffff    #     log_append_time_ms -1
        ffffffffffffffff    #     log_start_offset -1
        01                  #     record_errors: none
        00                  #     error_message null
        01 00 09            #     one tag: 0, 9 bytes, current_leader
        00000002            #       leader_id 2
        00000008            #       leader_epoch 8
        00                  #       no tags
        00                  #   no tags
        00000000            # throttle_time_ms 0
        01 00 0d            # one tag: 0, 13 bytes, node_endpoints
        02                  #   1
        00000002            #   node_id 2
        02 68               #   host "h"
        00002384            #   port 9092
        00                  #   rack null
        00                  #   no tags
    """, {"responses": [{"name": "t", "partition_responses": [
        {"index": 3, "error_code": 6, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1,
         "record_errors": [], "error_message": None, "current_leader": {"leader_id": 2, "leader_epoch": 8}}]}],
        "throttle_time_ms": 0, "node_endpoints": [{"node_id": 2, "host": "h", "port": 9092, "rack": None}]}),
    (FETCH.request, 11, """
        ffffffff            # replica_id -1
        000001f4            # max_wait_ms 500
        00000001            # min_bytes 1
        00100000            # max_bytes 1048576
        01                  # isolation_level 1
        00000000            # session_id 0
        ffffffff            # session_epoch -1
        00000001            # topics: 1
        0001 74             #   topic "t"
        00000001            #   partitions: 1
        00000003            #     partition 3
        00000007            #     current_leader_epoch 7
        000000000000002a    #     fetch_offset 42
        ffffffffffffffff    #     log_start_offset -1
        00010000            #     partition_max_bytes 65536
        00000001            # forgotten_topics_data: 1
        0001 75             #   topic "u"
        00000002 00000001 00000002  # partitions 1, 2
        0001 72             # rack_id "r"
    """, {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1,
          "session_id": 0, "session_epoch": -1, "topics": [{"topic": "t", "partitions": [
              {"partition": 3, "current_leader_epoch": 7, "fetch_offset": 42, "log_start_offset": -1,
               "partition_max_bytes": 65_536}]}],
          "forgotten_topics_data": [{"topic": "u", "partitions": [1, 2]}], "rack_id": "r"}),
    (FETCH.request, 17, """
        000001f4            # max_wait_ms 500
        00000001            # min_bytes 1
        00100000            # max_bytes 1048576
        00                  # isolation_level 0
        00000000            # session_id 0
        ffffffff            # session_epoch -1
        02                  # topics: 1
        00112233445566778899aabbccddeeff  # topic_id
        03                  #   partitions: 2
        00000003            #     partition 3
        00000007            #     current_leader_epoch 7
        000000000000002a    #     fetch_offset 42
        00000006            #     last_fetched_epoch 6
        ffffffffffffffff    #     log_start_offset -1
        00010000            #     partition_max_bytes 65536
        00                  #     no tags
        00000004            #     partition 4
        ffffffff            #     current_leader_epoch -1
        0000000000000000    #     fetch_offset 0
        ffffffff            #     last_fetched_epoch -1
        0000000000000000    #     log_start_offset 0
        00000001            #     partition_max_bytes 1
        01 00 10            #     one tag: 0, 16 bytes, replica_directory_id
        00112233445566778899aabbccddeeff
        00                  #   no tags
        01                  # forgotten_topics_data: none
        01                  # rack_id ""
        01 01 0d            # one tag: 1, 13 bytes, replica_state
        00000002            #   replica_id 2
        0000000000000009    #   replica_epoch 9
        00                  #   no tags
    """, {"cluster_id": None, "replica_state": {"replica_id": 2, "replica_epoch": 9}, "max_wait_ms": 500,
          "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
          "topics": [{"topic_id": TOPIC_ID, "partitions": [
              {"partition": 3, "current_leader_epoch": 7, "fetch_offset": 42, "last_fetched_epoch": 6,
               "log_start_offset": -1, "partition_max_bytes": 65_536, "replica_directory_id": UUID(int=0)},
              {"partition": 4, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
               "log_start_offset": 0, "partition_max_bytes": 1, "replica_directory_id": TOPIC_ID}]}],
          "forgotten_topics_data": [], "rack_id": ""}),
    (FETCH.response, 11, """
        00000000            # throttle_time_ms 0
        0000                # error_code 0
        00000000            # session_id 0
        00000001            # responses: 1
        0001 74             #   topic "t"
        00000001            #   partitions: 1
        00000003            #     partition_index 3
        0000                #     error_code 0
        000000000000002a    #     high_watermark 42
        0000000000000029    #     last_stable_offset 41
        0000000000000001    #     log_start_offset 1
        00000001            #     aborted_transactions: 1
        0000000000000064    #       producer_id 100
        0000000000000005    #       first_offset 5
        ffffffff            #     preferred_read_replica -1
        00000003 010203     #     records: 3 bytes
    """, {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": [{"topic": "t", "partitions": [
        {"partition_index": 3, "error_code": 0, "high_watermark": 42, "last_stable_offset": 41, "log_start_offset": 1,
         "aborted_transactions": [{"producer_id": 100, "first_offset": 5}], "preferred_read_replica": -1,
         "records": b"\x01\x02\x03"}]}]}),
    (FETCH.response, 12, """
        00000000            # throttle_time_ms 0
        0000                # error_code 0
        00000000            # session_id 0
        02                  # responses: 1
        02 74               #   topic "t"
        02                  #   partitions: 1
        00000003            #     partition_index 3
        0000                #     error_code 0
        000000000000002a    #     high_watermark 42
        000000000000002a    #     last_stable_offset 42
        0000000000000001    #     log_start_offset 1
        00                  #     aborted_transactions null
        ffffffff            #     preferred_read_replica -1
        01                  #     records: empty
        02                  #     two tags
        00 0d               #     0, 13 bytes, diverging_epoch
        00000004            #       epoch 4
        0000000000000028    #       end_offset 40
        00                  #       no tags
        01 09               #     1, 9 bytes, current_leader
        00000002            #       leader_id 2
        00000008            #       leader_epoch 8
        00                  #       no tags
        00                  #   no tags
        00                  # no tags
    """, {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": [{"topic": "t", "partitions": [
        {"partition_index": 3, "error_code": 0, "high_watermark": 42, "last_stable_offset": 42, "log_start_offset": 1,
         "diverging_epoch": {"epoch": 4, "end_offset": 40}, "current_leader": {"leader_id": 2, "leader_epoch": 8},
         "snapshot_id": {"end_offset": -1, "epoch": -1},
         "aborted_transactions": None, "preferred_read_replica": -1, "records": b""}]}]}),
    (METADATA.request, 12, """
        02                  # topics: 1
        00000000000000000000000000000000  # topic_id none
        02 74               #   name "t"
        00                  #   no tags
        01                  # allow_auto_topic_creation
        00                  # include_topic_authorized_operations
        00                  # no tags
    """, {"topics": [{"topic_id": UUID(int=0), "name": "t"}], "allow_auto_topic_creation": True,
          "include_topic_authorized_operations": False}),
    (METADATA.response, 7, """
        00000000            # throttle_time_ms 0
        00000001            # brokers: 1
        00000001            #   node_id 1
        0001 68             #   host "h"
        00002384            #   port 9092
        ffff                #   rack null
        0001 63             # cluster_id "c"
        00000001            # controller_id 1
        00000001            # topics: 1
        0000                #   error_code 0
        0001 74             #   name "t"
        00                  #   is_internal
        00000001            #   partitions: 1
        0000                #     error_code 0
        00000003            #     partition_index 3
        00000001            #     leader_id 1
        00000007            #     leader_epoch 7
        00000002 00000001 00000002  # replica_nodes 1, 2
        00000001 00000001   #     isr_nodes 1
        00000000            #     offline_replicas: none
    """, {"throttle_time_ms": 0, "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
          "cluster_id": "c", "controller_id": 1, "topics": [{"error_code": 0, "name": "t", "is_internal": False,
          "partitions": [{"error_code": 0, "partition_index": 3, "leader_id": 1, "leader_epoch": 7,
                          "replica_nodes": [1, 2], "isr_nodes": [1], "offline_replicas": []}]}]}),
    (METADATA.response, 9, """
        00000000            # throttle_time_ms 0
        01                  # brokers: none
        02 63               # cluster_id "c"
        ffffffff            # controller_id -1
        02                  # topics: 1
        0000                #   error_code 0
        02 74               #   name "t"
        00                  #   is_internal
        02                  #   partitions: 1
        0000                #     error_code 0
        00000003            #     partition_index 3
        00000001            #     leader_id 1
        00000007            #     leader_epoch 7
        03 00000001 00000002  #   replica_nodes 1, 2
        02 00000001         #     isr_nodes 1
        01                  #     offline_replicas: none
        00                  #     no tags
        80000000            #   topic_authorized_operations
        00                  #   no tags
        80000000            # cluster_authorized_operations
        00                  # no tags
    """, {"throttle_time_ms": 0, "brokers": [], "cluster_id": "c", "controller_id": -1, "topics": [
        {"error_code": 0, "name": "t", "is_internal": False, "topic_authorized_operations": -(1 << 31),
         "partitions": [{"error_code": 0, "partition_index": 3, "leader_id": 1, "leader_epoch": 7,
                         "replica_nodes": [1, 2], "isr_nodes": [1], "offline_replicas": []}]}],
        "cluster_authorized_operations": -(1 << 31)}),
    (API_VERSIONS.response, 0, """
        0023                # error_code 35
        00000001            # api_keys: 1
        0012 0000 0004      #   18: 0 to 4
    """, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}),
    (API_VERSIONS.response, 3, """
        0000                # error_code 0
        03                  # api_keys: 2
        0000 0000 000b 00   #   0: 0 to 11, no tags
        0001 0004 0011 00   #   1: 4 to 17, no tags
        00000000            # throttle_time_ms 0
        00                  # no tags
    """, {"error_code": 0, "api_keys": [{"api_key": 0, "min_version": 0, "max_version": 11},
                                        {"api_key": 1, "min_version": 4, "max_version": 17}],
          "throttle_time_ms": 0, "supported_features": [], "finalized_features_epoch": -1, "finalized_features": [],
          "zk_migration_ready": False}),
    (LEADER_AND_ISR.request, 4, """
        00000001            # controller_id 1
        00000002            # controller_epoch 2
        0000000000000064    # broker_epoch 100
        02                  # topic_states: 1
        02 74               #   topic_name "t"
        02                  #   partition_states: 1
        00000003            #     partition_index 3
        00000002            #     controller_epoch 2
        00000001            #     leader 1
        00000007            #     leader_epoch 7
        03 00000001 00000002  #   isr 1, 2
        00000009            #     partition_epoch 9
        03 00000001 00000002  #   replicas 1, 2
        01                  #     adding_replicas: none
        01                  #     removing_replicas: none
        01                  #     is_new
        00                  #     no tags
        00                  #   no tags
        02                  # live_leaders: 1
        00000001            #   broker_id 1
        02 68               #   host_name "h"
        00002384            #   port 9092
        00                  #   no tags
        00                  # no tags
    """, {"controller_id": 1, "controller_epoch": 2, "broker_epoch": 100, "command_number": -1, "topic_states": [
        {"topic_name": "t", "partition_states": [
            {"partition_index": 3, "controller_epoch": 2, "leader": 1, "leader_epoch": 7, "isr": [1, 2],
             "partition_epoch": 9, "replicas": [1, 2], "adding_replicas": [], "removing_replicas": [],
             "is_new": True, "eligible_leader_replicas": [],
             "read_only": False}]}], "live_leaders": [{"broker_id": 1, "host_name": "h", "port": 9092}]}),
    (UPDATE_METADATA.request, 5, """
        00000001            # controller_id 1
        00000002            # controller_epoch 2
        0000000000000064    # broker_epoch 100
        00000001            # topic_states: 1
        0001 74             #   topic_name "t"
        00000001            #   partition_states: 1
        00000003            #     partition_index 3
        00000002            #     controller_epoch 2
        fffffffe            #     leader -2, being deleted
        00000007            #     leader_epoch 7
        00000000            #     isr: none
        00000009            #     zk_version 9
        00000001 00000001   #     replicas 1
        00000001 00000001   #     offline_replicas 1
        00000001            # live_brokers: 1
        00000001            #   id 1
        00000001            #   endpoints: 1
        00002384            #     port 9092
        0001 68             #     host "h"
        0001 50             #     listener "P"
        0000                #     security_protocol 0
        0001 72             #   rack "r"
    """, {"controller_id": 1, "controller_epoch": 2, "broker_epoch": 100, "topic_states": [
        {"topic_name": "t", "partition_states": [
            {"partition_index": 3, "controller_epoch": 2, "leader": -2, "leader_epoch": 7, "isr": [], "zk_version": 9,
             "replicas": [1], "offline_replicas": [1]}]}],
        "live_brokers": [{"id": 1, "rack": "r", "endpoints": [
            {"port": 9092, "host": "h", "listener": "P", "security_protocol": 0}]}]}),
    (CONSUMER_GROUP_HEARTBEAT.request, 1, """
        02 67               # group_id "g"
        02 6d               # member_id "m"
        00000003            # member_epoch 3
        00                  # instance_id null
        02 72               # rack_id "r"
        0000ea60            # rebalance_timeout_ms 60000
        02 02 74            # subscribed_topic_names: "t"
        04 74 2e 2a         # subscribed_topic_regex "t.*"
        06 72 61 6e 67 65   # server_assignor "range"
        01                  # topic_partitions: none
        00                  # no tags
    """, {"group_id": "g", "member_id": "m", "member_epoch": 3, "instance_id": None, "rack_id": "r",
          "rebalance_timeout_ms": 60000, "subscribed_topic_names": ["t"], "subscribed_topic_regex": "t.*",
          "server_assignor": "range", "topic_partitions": []}),
    (CONSUMER_GROUP_HEARTBEAT.response, 0, """
        00000000            # throttle_time_ms 0
        0000                # error_code 0
        00                  # error_message null
        02 6d               # member_id "m"
        00000001            # member_epoch 1
        00001388            # heartbeat_interval_ms 5000
        01                  # assignment: present (KIP-893)
        02                  #   topic_partitions: 1
        00112233445566778899aabbccddeeff  # topic_id
        02 00000003         #     partitions 3
        00                  #     no tags
        00                  #   no tags
        00                  # no tags
    """, {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "member_id": "m", "member_epoch": 1,
          "heartbeat_interval_ms": 5000,
          "assignment": {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [3]}]}}),
    (DESCRIBE_TOPIC_PARTITIONS.request, 0, """
        01                  # topics: none
        000007d0            # response_partition_limit 2000
        ff                  # cursor null
        00                  # no tags
    """, {"topics": [], "response_partition_limit": 2000, "cursor": None}),
]
# fmt: on


def bytes_of(text: str) -> bytes:
    """Decode hexadecimal lines with comments."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


@pytest.mark.parametrize(("schema", "version", "text", "value"), CASES, ids=lambda case: getattr(case, "name", None))
def test_golden_bytes(schema: Schema, version: int, text: str, value: dict[str, Any]) -> None:
    """Building a message returns these bytes, and parsing them returns the message."""
    data = bytes_of(text)
    assert schema.build(version, value).hex(" ") == data.hex(" ")
    assert schema.build_uncompiled(version, value) == data
    assert schema.parse(version, data) == value
    assert schema.parse_uncompiled(version, data) == value
