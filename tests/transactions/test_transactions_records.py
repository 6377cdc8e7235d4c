"""Record format of ``__transaction_state``, compatible with Kafka."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.transactions.records import decode_key, decode_value, encode_key, encode_value
from kreplica.transactions.states import Identity, Transaction, TransactionState

KEY = bytes.fromhex(
    "0000"  # version
    "0002"  # length of the transactional id
    "7478"  # tx
)

PLAIN = bytes.fromhex(
    "0000"  # version
    "0000000000000007"  # producer id
    "0003"  # producer epoch
    "0000ea60"  # timeout: 60,000 ms
    "01"  # Ongoing
    "00000001"  # topics
    "0001" "74"  # t
    "00000002"  # its partitions
    "00000000" "00000005"
    "0000018bcfe56801"  # last update
    "0000018bcfe56800"  # start
)  # fmt: skip

EMPTY = bytes.fromhex(
    "0000" "0000000000000007" "0003" "0000ea60"
    "00"  # Empty
    "ffffffff"  # no partitions
    "0000018bcfe56801"
    "ffffffffffffffff"  # no transaction has started
)  # fmt: skip

GROWING = bytes.fromhex(
    "0001"  # version
    "0000000000000007"
    "7fff"  # the epoch of the markers
    "0000ea60"
    "02"  # PrepareCommit
    "02"  # compact array of one topic
    "02" "74"  # t
    "03" "00000000" "00000005"  # compact array of two partitions
    "00"  # no tags of the topic
    "0000018bcfe56801"
    "0000018bcfe56800"
    "04"  # four tags
    "00" "08" "0000000000000007"  # the previous producer id
    "01" "08" "0000000000000009"  # the next one
    "02" "02" "0002"  # the client's transaction version
    "03" "02" "0000"  # the next epoch
)  # fmt: skip

PARTITIONS = frozenset({TopicPartition("t", 5), TopicPartition("t", 0)})
TIMES = {"last_update_ms": 1_700_000_000_001, "start_ms": 1_700_000_000_000}


def ongoing() -> Transaction:
    return Transaction("tx", 7, 3, 60_000, TransactionState.ONGOING, PARTITIONS, **TIMES)


def test_keys():
    """A key contains the transactional ID."""
    assert encode_key("tx") == KEY
    assert decode_key(KEY) == "tx"
    assert decode_key(encode_key("gruß")) == "gruß"


def test_unknown_key_versions_are_ignored():
    """Unknown key versions are ignored, as in Kafka (KIP-915)."""
    assert decode_key(b"\x00\x01" + KEY[2:]) is None


def test_version_0_is_preferred():
    """Transactions whose epochs are not bumped can be read by all Kafka versions."""
    assert encode_value(ongoing()) == PLAIN
    assert decode_value("tx", PLAIN) == ongoing()
    empty = Transaction("tx", 7, 3, 60_000, last_update_ms=1_700_000_000_001)
    assert encode_value(empty) == EMPTY
    assert decode_value("tx", EMPTY) == empty


def test_version_1_is_used_if_needed():
    """Previous and next IDs and the client version are tagged fields."""
    prepared = Transaction(
        "tx",
        7,
        32767,
        60_000,
        TransactionState.PREPARE_COMMIT,
        PARTITIONS,
        previous_producer_id=7,
        next_identity=Identity(9, 0),
        client_version=2,
        **TIMES,
    )
    assert encode_value(prepared) == GROWING
    assert decode_value("tx", GROWING) == prepared


def test_next_id_without_an_epoch_starts_at_0():
    """Kafka 4.0 writes only the next producer ID, which implies epoch 0."""
    before_939 = GROWING.replace(bytes.fromhex("0402"), bytes.fromhex("0302"), 0)
    without = before_939[: -len(bytes.fromhex("03020000"))]
    count_at = len(without) - len(bytes.fromhex("000800000000000000070108000000000000000902020002")) - 1
    without = without[:count_at] + b"\x03" + without[count_at + 1 :]
    assert decode_value("tx", without).next_identity == Identity(9, 0)


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_value_of_an_unknown_version_is_refused(version):
    """A broker that cannot read a record must not coordinate its transactional ID."""
    with pytest.raises(ProtocolError, match=f"unknown version {version} for 'tx'"):
        decode_value("tx", struct.pack(">h", version) + PLAIN[2:])


def test_value_of_an_unknown_state_is_refused():
    """Unknown states from later versions are errors."""
    with pytest.raises(ProtocolError, match="status: unknown status 8 for 'tx'"):
        decode_value("tx", PLAIN[:16] + b"\x08" + PLAIN[17:])


@pytest.mark.parametrize("record", [KEY, PLAIN, GROWING])
def test_truncated_records_are_refused(record):
    for size in range(len(record)):
        with pytest.raises(ProtocolError):
            decode_key(record[:size]) if record is KEY else decode_value("tx", record[:size])


transactions = st.builds(
    Transaction,
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(TransactionState),
    st.frozensets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9))),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    previous_producer_id=st.integers(-1, 2**40),
    next_identity=st.one_of(
        st.just(Identity(-1, -1)), st.builds(Identity, st.integers(0, 2**40), st.integers(0, 2**15 - 1))
    ),
    client_version=st.sampled_from([0, 2]),
)


@given(transactions)
def test_transaction_round_trip(transaction):
    assert decode_key(encode_key(transaction.transactional_id)) == transaction.transactional_id
    assert decode_value(transaction.transactional_id, encode_value(transaction)) == transaction
