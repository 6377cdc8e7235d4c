"""Offsets in memory while their records are being written."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offsets_scene import NOT_TRANSACTIONAL, OffsetsScene, all_offsets, effective_offsets, header_of

from kreplica.errors import ErrorCode, ProtocolError
from kreplica.groups.offsets import Offsets
from kreplica.groups.records import (
    CommittedOffset,
    OffsetKey,
    build_offset_key,
    build_offset_value,
    parse_offset_key,
)

PLAIN = header_of(NOT_TRANSACTIONAL, [(b"", b"")])

groups = st.sampled_from(["g", "h"])
topics = st.sampled_from(["t", "u"])
partitions = st.integers(0, 1)
producers = st.integers(1, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), groups, topics, partitions),
        st.tuples(st.just("in transaction"), producers, groups, topics, partitions),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.just("remove"), groups),
        st.tuples(st.just("committed"), st.integers(0, 3)),
    ),
    max_size=30,
)


def test_offset_is_visible_once_it_is_committed() -> None:
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 5)
    assert (scene.offset("g", "t", 0), scene.answers) == (None, [])
    assert scene.offsets.has("g")
    scene.log.commit()
    assert (scene.offset("g", "t", 0), scene.answers) == (5, [ErrorCode.NONE])
    assert scene.offsets.partitions_of("g") == [("t", [0])]
    assert scene.offsets.group_ids() == ["g"]


def test_all_fields_of_an_offset_are_stored() -> None:
    """The fields are leader epoch, metadata and commit time."""
    scene = OffsetsScene()
    value = CommittedOffset(7, 3, "where I was", 1_700_000_000_000)
    key = build_offset_key("g", "t", 2)
    scene.offsets.replay(key, build_offset_value(value), PLAIN)
    assert scene.offsets.committed("g", "t", 2) == value
    assert scene.offsets.committed("g", "t", 3) is None
    assert scene.offsets.committed("g", "u", 2) is None
    assert scene.offsets.committed("h", "t", 2) is None


def test_failed_commit_changes_nothing() -> None:
    """After a failed commit, the group has no offsets and the client gets an error."""
    scene = OffsetsScene()
    scene.log.rejects = True
    scene.commit("g", "t", 0, 5)
    scene.log.rejected[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not scene.offsets.has("g")


def test_transactional_offsets_are_unstable_until_the_end() -> None:
    """Stable fetches are rejected from the append until the transaction ends."""
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    assert scene.offsets.is_unstable("g", "t", 0)
    assert not scene.offsets.is_unstable("g", "t", 1)
    assert not scene.offsets.is_unstable("h", "t", 0)
    scene.log.commit()
    assert scene.answers == [ErrorCode.NONE]
    assert scene.offsets.is_unstable("g", "t", 0)
    assert scene.offset("g", "t", 0) is None
    scene.end(1, commits=True)
    assert not scene.offsets.is_unstable("g", "t", 0)
    assert scene.offset("g", "t", 0) == 5


def test_offsets_of_an_aborted_transaction_are_discarded() -> None:
    """After an abort, the previous offsets are effective."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 3)
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit_in_transaction(1, "h", "t", 0, 5)
    scene.end(1, commits=False)
    assert scene.all_offsets() == {OffsetKey("g", "t", 0): 3}
    assert not scene.offsets.has("h")


def test_failed_transactional_append_leaves_the_partition_stable() -> None:
    """A failed append does not wait for a marker, because none will follow."""
    scene = OffsetsScene()
    scene.log.rejects = True
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    assert not scene.offsets.is_unstable("g", "t", 0)
    scene.log.rejected[0](ErrorCode.INVALID_PRODUCER_EPOCH)
    assert scene.answers == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not scene.offsets.has("g")


def test_two_transactions_of_one_partition() -> None:
    """A partition is unstable until all its transactions have ended; the later record wins."""
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit_in_transaction(2, "g", "t", 0, 6)
    scene.end(2, commits=True)
    assert scene.offsets.is_unstable("g", "t", 0)
    assert scene.offset("g", "t", 0) == 6
    scene.end(1, commits=True)
    assert not scene.offsets.is_unstable("g", "t", 0)
    assert scene.offset("g", "t", 0) == 6


def test_later_plain_commit_is_kept() -> None:
    """A plain commit after transactional offsets survives the end of the transaction."""
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit("g", "t", 0, 9)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 9
    assert all_offsets(scene.replay()) == scene.all_offsets()


def test_earlier_plain_commit_is_replaced() -> None:
    """Transactional offsets after a plain commit win, even if they are smaller."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 9)
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 5


def test_second_commit_of_a_transaction_wins() -> None:
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit_in_transaction(1, "g", "t", 0, 7)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 7


def test_deletion_covers_pending_commits() -> None:
    """A deletion covers pending commits and open transactions."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 5)
    scene.log.commit()
    scene.commit("g", "t", 1, 5)
    scene.commit_in_transaction(1, "g", "t", 2, 5)
    scene.remove("g")
    assert [key.partition for key in last_keys(scene)] == [0, 1, 2]
    scene.log.commit()
    assert scene.all_offsets() == {}
    scene.end(1, commits=True)
    assert scene.all_offsets() == {}
    assert not scene.offsets.has("g")


def last_keys(scene: OffsetsScene) -> list[OffsetKey]:
    return [parse_offset_key(key) for key, _ in scene.log.entries[-1].records]


def test_only_the_requested_offsets_are_deleted() -> None:
    scene = OffsetsScene()
    for group in ("g", "h"):
        for partition in (0, 1):
            scene.commit(group, "t", partition, 5)
    scene.log.commit()
    scene.offsets.remove(scene.offsets.tombstones("g", lambda topic, partition: partition == 1), scene.answers.append)
    scene.log.commit()
    assert list(scene.all_offsets()) == [OffsetKey("g", "t", 0), OffsetKey("h", "t", 0), OffsetKey("h", "t", 1)]


def test_value_of_an_unknown_version_fails_the_load() -> None:
    """A record of an unknown version fails the load; otherwise its offset would be lost."""
    offsets = OffsetsScene().offsets
    key = build_offset_key("g", "t", 0)
    with pytest.raises(ProtocolError, match="OffsetCommitValue: version 7"):
        offsets.replay(key, b"\x00\x07" + bytes(30), PLAIN)


def test_unloaded_shard_is_empty() -> None:
    """An unloaded shard has no offsets, and its pending appends are still answered."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 5)
    scene.commit_in_transaction(1, "h", "t", 0, 5)
    scene.offsets.unload()
    for _, answer in scene.log.waiting:
        answer(ErrorCode.NOT_COORDINATOR)
    assert scene.answers == [ErrorCode.NOT_COORDINATOR] * 2
    assert not scene.offsets.has("g")
    assert not scene.offsets.has("h")


@given(steps)
@settings(max_examples=300)
def test_offsets_match_kafkas_rule(steps: list[tuple[object, ...]]) -> None:
    """For any interleaving of commits, transactions and deletions, the effective offsets are those of Kafka."""
    scene = OffsetsScene()
    for offset, (step, *arguments) in enumerate(steps):
        if step == "commit":
            scene.commit(*arguments, offset)
        elif step == "in transaction":
            scene.commit_in_transaction(*arguments, offset)
        elif step == "end":
            producer_id, commits = arguments
            scene.end(int(producer_id), commits=bool(commits))
        elif step == "remove":
            scene.remove(str(arguments[0]))
        else:
            scene.log.commit(min(int(arguments[0]), len(scene.log.waiting)))
    scene.log.commit()
    expected = effective_offsets(scene.log.entries)
    assert scene.all_offsets() == expected
    replayed = scene.replay()
    assert all_offsets(replayed) == expected
    for producer_id in (1, 2, 3):
        scene.end(producer_id, commits=True)
        replayed.end_transaction(producer_id, True)
    assert scene.all_offsets() == all_offsets(replayed) == effective_offsets(scene.log.entries)
    assert_nothing_is_pending(scene.offsets)


def assert_nothing_is_pending(offsets: Offsets) -> None:
    for group in ("g", "h"):
        assert not offsets.is_changing(group)
        assert offsets.has(group) == (group in offsets.group_ids())


def test_memory_per_offset() -> None:
    """An offset takes little more memory than its record value."""
    offsets = OffsetsScene().offsets
    count = 5000
    tracemalloc.start()
    try:
        for partition in range(count):
            key = build_offset_key("group", "topic", partition)
            offsets.replay(key, build_offset_value(CommittedOffset(partition, 1, "", 1)), PLAIN)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(offsets.partitions_of("group")[0][1]) == count
    assert size / count < 200
