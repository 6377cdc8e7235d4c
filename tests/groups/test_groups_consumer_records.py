"""Records of KIP-848 groups, byte for byte as written by Kafka 4.0."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kreplica.errors import ProtocolError
from kreplica.groups.consumer_records import (
    ConsumerKey,
    RecordKind,
    build_consumer_key,
    build_consumer_value,
    is_consumer_key,
    parse_consumer_key,
    parse_consumer_value,
)

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

# Records written by Kafka 4.0.0 for these values.
# fmt: off
KEYS = [
    (RecordKind.GROUP_EPOCH, "", "0003 000167"),
    (RecordKind.TOPICS, "", "0004 000167"),
    (RecordKind.MEMBER, "m", "0005 000167 00016d"),
    (RecordKind.TARGET_EPOCH, "", "0006 000167"),
    (RecordKind.TARGET, "m", "0007 000167 00016d"),
    (RecordKind.CURRENT, "m", "0008 000167 00016d"),
    (RecordKind.REGULAR_EXPRESSION, "x.*", "0010 000167 0003782e2a"),
]

VALUES: list[tuple[RecordKind, dict[str, Any], str]] = [
    (RecordKind.GROUP_EPOCH, {"epoch": 7}, """
        0000                # version 0
        00000007            # epoch 7
        00                  # no tags
    """),
    (RecordKind.TOPICS, {"topics": [{"topic_id": TOPIC_ID, "topic_name": "t", "num_partitions": 3,
                                     "partition_metadata": [{"partition": 2, "racks": ["r"]}]}]}, """
        0000                # version 0
        02                  # topics: 1
        00112233445566778899aabbccddeeff  # topic_id
        02 74               #   topic_name "t"
        00000003            #   num_partitions 3
        02 00000002         #   partition_metadata: partition 2
        02 02 72            #     racks: "r"
        00                  #     no tags
        00                  #   no tags
        00                  # no tags
    """),
    (RecordKind.MEMBER, {"instance_id": "i", "rack_id": None, "client_id": "c", "client_host": "/127.0.0.1",
                         "subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": "x.*",
                         "rebalance_timeout_ms": 60000, "server_assignor": "range"}, """
        0000                # version 0
        02 69               # instance_id "i"
        00                  # rack_id null
        02 63               # client_id "c"
        0b 2f3132372e302e302e31  # client_host "/127.0.0.1"
        03 02 74 02 75      # subscribed_topic_names: "t", "u"
        04 782e2a           # subscribed_topic_regex "x.*"
        0000ea60            # rebalance_timeout_ms 60000
        06 72616e6765       # server_assignor "range"
        00                  # no tags
    """),
    (RecordKind.TARGET_EPOCH, {"assignment_epoch": 7}, """
        0000                # version 0
        00000007            # assignment_epoch 7
        00                  # no tags
    """),
    (RecordKind.TARGET, {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [0, 2]}]}, """
        0000                # version 0
        02                  # topic_partitions: 1
        00112233445566778899aabbccddeeff  # topic_id
        03 00000000 00000002  # partitions 0, 2
        00                  #   no tags
        00                  # no tags
    """),
    (RecordKind.CURRENT, {"member_epoch": 7, "previous_member_epoch": 6, "state": 1,
                          "assigned_partitions": [{"topic_id": TOPIC_ID, "partitions": [0]}],
                          "partitions_pending_revocation": [{"topic_id": TOPIC_ID, "partitions": [2]}]}, """
        0000                # version 0
        00000007            # member_epoch 7
        00000006            # previous_member_epoch 6
        01                  # state 1
        02                  # assigned_partitions: 1
        00112233445566778899aabbccddeeff  # topic_id
        02 00000000         #   partitions 0
        00                  #   no tags
        02                  # partitions_pending_revocation: 1
        00112233445566778899aabbccddeeff  # topic_id
        02 00000002         #   partitions 2
        00                  #   no tags
        00                  # no tags
    """),
    (RecordKind.REGULAR_EXPRESSION, {"topics": ["xa"], "version": 5, "timestamp": 1000}, """
        0000                # version 0
        02 03 7861          # topics: "xa"
        0000000000000005    # version 5
        00000000000003e8    # timestamp 1000
        00                  # no tags
    """),
]
# fmt: on


def parse_hex(text: str) -> bytes:
    """Parse lines of hexadecimal digits with comments."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


@pytest.mark.parametrize(("kind", "name", "text"), KEYS)
def test_keys(kind: RecordKind, name: str, text: str) -> None:
    """Keys are encoded to and decoded from these bytes."""
    key = ConsumerKey(kind, "g", name)
    assert build_consumer_key(key).hex() == parse_hex(text).hex()
    assert parse_consumer_key(parse_hex(text)) == key
    assert is_consumer_key(kind)


@pytest.mark.parametrize(("kind", "fields", "text"), VALUES)
def test_values(kind: RecordKind, fields: dict[str, Any], text: str) -> None:
    """Values are encoded to and decoded from these bytes."""
    assert build_consumer_value(kind, fields).hex(" ") == parse_hex(text).hex(" ")
    assert parse_consumer_value(kind, parse_hex(text)) == fields


def test_members_of_the_classic_protocol() -> None:
    """Classic-protocol data of a converted member is ignored."""
    value = parse_hex("""
        0000                # version 0
        00 00               # instance_id, rack_id null
        02 63 02 68         # client_id "c", client_host "h"
        01 00               # no names, no regular expression
        00000001            # rebalance_timeout_ms 1
        00                  # server_assignor null
        01 00 11            # tag 0, 17 bytes
        01 00000005         #   present; session_timeout_ms 5
        02 06 72616e6765    #   protocols: "range"
        03 0102 00 00       #     metadata
    """)
    fields = parse_consumer_value(RecordKind.MEMBER, value)
    assert fields["client_id"] == "c"
    assert fields["rebalance_timeout_ms"] == 1


def test_unknown_tags_are_ignored() -> None:
    """Unknown tagged fields, which Kafka 4.1 writes, are ignored."""
    value = parse_hex("0000 00000007 01 00 08 0102030405060708")
    assert parse_consumer_value(RecordKind.GROUP_EPOCH, value) == {"epoch": 7}


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\2\0\1g", b"\0\x11\0\1g", b"\0\5\0\1g", b"\0\3\0\5g"])
def test_malformed_keys_are_refused(key: bytes) -> None:
    """Truncated or unknown keys are errors with a reason."""
    with pytest.raises(ProtocolError, match="Key"):
        parse_consumer_key(key)


@pytest.mark.parametrize("value", [b"", b"\0\1\0\0\0\7\0", b"\0\0\0\0"])
def test_malformed_values_are_refused(value: bytes) -> None:
    """Truncated or unknown values are errors with a reason."""
    with pytest.raises(ProtocolError, match="ConsumerGroupMetadataValue"):
        parse_consumer_value(RecordKind.GROUP_EPOCH, value)


def test_strings_too_long_are_refused() -> None:
    """Strings whose length does not fit into an int16 are refused in keys."""
    with pytest.raises(ProtocolError, match="too long"):
        build_consumer_key(ConsumerKey(RecordKind.MEMBER, "g", "m" * 2**15))
