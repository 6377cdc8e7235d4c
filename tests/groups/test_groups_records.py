"""Record format of ``__consumer_offsets``, byte for byte as in Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.groups import records
from kreplica.groups.records import CommittedOffset, GroupRecord, MemberRecord, OffsetKey

OFFSET_KEY = (
    "0001"  # version
    "0007 7265 6164 6572 73"  # group "readers"
    "0005 636c 6963 6b"  # topic, truncated here
)
OFFSET_KEYS = [
    # version, group, topic, partition
    ("0001 0007 72656164657273 0006 636c69636b73 0000000b", OffsetKey("readers", "clicks", 11)),
    ("0001 0002 c3a9 0001 74 00000000", OffsetKey("é", "t", 0)),
]
OFFSET_VALUES = [
    # version, offset, leader epoch, metadata, commit timestamp
    ("0003 000000000000002a 00000007 0002 6869 0000018bcfe56800", CommittedOffset(42, 7, "hi", 1_700_000_000_000)),
    ("0003 000000000000002a ffffffff 0000 0000018bcfe56800", CommittedOffset(42, -1, "", 1_700_000_000_000)),
    # version, offset, metadata, commit timestamp, expire timestamp
    ("0001 000000000000002a 0002 6869 0000000000000064 00000000000000c8", CommittedOffset(42, -1, "hi", 100, 200)),
]
OLD_OFFSET_VALUES = [
    ("0000 000000000000002a 0002 6869 0000000000000064", CommittedOffset(42, -1, "hi", 100)),
    ("0002 000000000000002a 0002 6869 0000000000000064", CommittedOffset(42, -1, "hi", 100)),
    # flexible: metadata's length + 1, no tags
    ("0004 000000000000002a 00000007 03 6869 0000000000000064 00", CommittedOffset(42, 7, "hi", 100)),
    # the same with tag 0, a topic ID of 16 bytes
    (
        "0004 000000000000002a 00000007 03 6869 0000000000000064 01 00 10 000102030405060708090a0b0c0d0e0f",
        CommittedOffset(42, 7, "hi", 100),
    ),
]
MEMBER = MemberRecord("m-1", "static", "cli", "/10.0.0.1", 300, 100, b"\x01\x02", b"\x03")
GROUP = GroupRecord("consumer", 5, "range", "m-1", 200, (MEMBER,))
GROUP_VALUE = (
    "0003"  # version
    "0008 636f6e73756d6572"  # protocol type
    "00000005"  # generation
    "0005 72616e6765"  # protocol
    "0003 6d2d31"  # leader
    "00000000000000c8"  # time of the last state change
    "00000001"  # members
    "0003 6d2d31"  # member id
    "0006 737461746963"  # group instance id
    "0003 636c69"  # client id
    "0009 2f31302e302e302e31"  # client host
    "0000012c"  # rebalance timeout
    "00000064"  # session timeout
    "00000002 0102"  # subscription
    "00000001 03"  # assignment
)
EMPTY_GROUP = GroupRecord("", 0, None, None, 200, ())
EMPTY_GROUP_VALUE = "0003 0000 00000000 ffff ffff 00000000000000c8 00000000"
ANCIENT_MEMBER = "0003 6d2d31 0003 636c69 0009 2f31302e302e302e31 {timeouts} 00000002 0102 00000001 03"
ANCIENT_HEAD = "0008 636f6e73756d6572 00000005 0005 72616e6765 0003 6d2d31"
OLD_GROUP_VALUES = [
    # neither a rebalance timeout nor a state change time
    ("0000" + ANCIENT_HEAD + "00000001" + ANCIENT_MEMBER.format(timeouts="00000064"), (-1, 100)),
    ("0001" + ANCIENT_HEAD + "00000001" + ANCIENT_MEMBER.format(timeouts="0000012c 00000064"), (-1, 300)),
    (
        "0002" + ANCIENT_HEAD + "00000000000000c8 00000001" + ANCIENT_MEMBER.format(timeouts="0000012c 00000064"),
        (200, 300),
    ),
]

text = st.text(max_size=20)
int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
timeout = st.integers(0, 2**31 - 1)
member_records = st.builds(
    MemberRecord, text, st.none() | text, text, text, timeout, timeout, st.binary(max_size=20), st.binary(max_size=20)
)
group_records = st.builds(
    GroupRecord, text, int32, st.none() | text, st.none() | text, int64, st.lists(member_records, max_size=3).map(tuple)
)


@pytest.mark.parametrize(("golden", "key"), OFFSET_KEYS)
def test_offset_keys_equal_kafkas(golden: str, key: OffsetKey) -> None:
    assert records.build_offset_key(*key) == bytes.fromhex(golden)
    assert records.parse_offset_key(bytes.fromhex(golden)) == key
    assert records.key_version(bytes.fromhex(golden)) in records.OFFSET_KEY_VERSIONS


def test_offset_keys_of_version_0_are_read() -> None:
    """Key version 0 has the same content as version 1."""
    golden, key = OFFSET_KEYS[0]
    assert records.parse_offset_key(b"\0\0" + bytes.fromhex(golden)[2:]) == key


@pytest.mark.parametrize(("golden", "value"), OFFSET_VALUES)
def test_offset_values_equal_kafkas(golden: str, value: CommittedOffset) -> None:
    """Values with an expiry time have version 1."""
    assert records.build_offset_value(value) == bytes.fromhex(golden)
    assert records.parse_offset_value(bytes.fromhex(golden)) == value


@pytest.mark.parametrize(("golden", "value"), OLD_OFFSET_VALUES)
def test_offset_values_of_other_versions_are_read(golden: str, value: CommittedOffset) -> None:
    assert records.parse_offset_value(bytes.fromhex(golden)) == value


def test_group_values_equal_kafkas() -> None:
    assert records.build_group_key("readers") == bytes.fromhex("0002 0007 72656164657273")
    assert records.parse_group_key(bytes.fromhex("0002 0007 72656164657273")) == "readers"
    assert records.build_group_value(GROUP) == bytes.fromhex(GROUP_VALUE)
    assert records.parse_group_value(bytes.fromhex(GROUP_VALUE)) == GROUP
    assert records.build_group_value(EMPTY_GROUP) == bytes.fromhex(EMPTY_GROUP_VALUE)
    assert records.parse_group_value(bytes.fromhex(EMPTY_GROUP_VALUE)) == EMPTY_GROUP


@pytest.mark.parametrize(("golden", "times"), OLD_GROUP_VALUES)
def test_group_values_of_older_versions_are_read(golden: str, times: tuple[int, int]) -> None:
    """Without a rebalance timeout the session timeout is used."""
    group = records.parse_group_value(bytes.fromhex(golden))
    assert (group.state_timestamp_ms, group.members[0].rebalance_timeout_ms) == times
    assert group.members[0].session_timeout_ms == 100
    assert group.members[0].group_instance_id is None
    assert group.members[0].assignment == b"\x03"


@pytest.mark.parametrize(
    ("parse", "data", "message"),
    [
        (records.parse_offset_value, "0005 0000", r"OffsetCommitValue: version 5 is not within 0 to 4"),
        (records.parse_group_value, "0063 0000", r"GroupMetadataValue: version 99 is not within 0 to 4"),
        (records.parse_group_value, "ffff 0000", r"GroupMetadataValue: version -1 is not within 0 to 4"),
        (records.parse_offset_key, "0002 0000", r"OffsetCommitKey: version 2 is not within 0 to 1"),
        (records.parse_group_key, "0001 0000", r"GroupMetadataKey: version 1 is not within 2 to 2"),
        (records.parse_offset_key, OFFSET_KEY, r"OffsetCommitKey.partition: needs 4 bytes"),
        (records.parse_offset_value, "0003 00", r"OffsetCommitValue.offset: needs 8 bytes, but 1 remain"),
        (records.parse_offset_value, "", r"OffsetCommitValue.version: needs 2 bytes"),
        (records.parse_group_value, "0003 0001 ff", r"GroupMetadataValue.protocol_type: is not UTF-8"),
        (records.key_version, "00", r"CoordinatorKey.version: needs 2 bytes, but there are 1"),
    ],
)
def test_malformed_records_are_refused(parse: object, data: str, message: str) -> None:
    """The error names the field or the unknown version."""
    assert callable(parse)
    with pytest.raises(ProtocolError, match=message):
        parse(bytes.fromhex(data))


@pytest.mark.parametrize("golden", [GROUP_VALUE, OFFSET_VALUES[0][0], OFFSET_VALUES[2][0], OLD_OFFSET_VALUES[3][0]])
def test_truncated_records_are_refused(golden: str) -> None:
    parse = records.parse_group_value if golden is GROUP_VALUE else records.parse_offset_value
    data = bytes.fromhex(golden)
    parse(data)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            parse(data[:size])


def test_strings_too_long_are_refused() -> None:
    """Strings whose length does not fit into an int16 are refused."""
    fits, too_long = "x" * records.TEXT_SIZE_MAX, "x" * (records.TEXT_SIZE_MAX + 1)
    assert records.parse_offset_value(records.build_offset_value(CommittedOffset(1, 1, fits, 1))).metadata == fits
    for build in (
        lambda: records.build_offset_value(CommittedOffset(1, 1, too_long, 1)),
        lambda: records.build_offset_value(CommittedOffset(1, 1, too_long, 1, 2)),
        lambda: records.build_offset_key(too_long, "t", 0),
        lambda: records.build_group_key(too_long),
        lambda: records.build_group_value(GroupRecord(too_long, 0, None, None, 0, ())),
    ):
        with pytest.raises(ProtocolError):
            build()


@given(
    st.builds(OffsetKey, text, text, int32),
    st.builds(CommittedOffset, int64, int32, text, int64, st.just(records.NO_TIME)),
)
def test_offset_round_trip(key: OffsetKey, value: CommittedOffset) -> None:
    assert records.parse_offset_key(records.build_offset_key(*key)) == key
    assert records.parse_offset_value(records.build_offset_value(value)) == value


@given(group_records)
def test_group_round_trip(group: GroupRecord) -> None:
    assert records.parse_group_value(records.build_group_value(group)) == group
