"""Offsets in memory while their records are being written."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offsets_scene import NOT_TRANSACTIONAL, OffsetsScene, by_kafkas_rule, everything, header_of

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


def test_an_offset_counts_once_it_is_committed() -> None:
    """A commit is answered and visible when its record is committed."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 5)
    assert (scene.offset("g", "t", 0), scene.answers) == (None, [])
    assert scene.offsets.has("g")
    scene.log.commit()
    assert (scene.offset("g", "t", 0), scene.answers) == (5, [ErrorCode.NONE])
    assert scene.offsets.partitions_of("g") == [("t", [0])]
    assert scene.offsets.group_ids() == ["g"]


def test_all_of_a_value_comes_back() -> None:
    """Leader epoch, metadata and commit time are stored with the offset."""
    scene = OffsetsScene()
    value = CommittedOffset(7, 3, "where I was", 1_700_000_000_000)
    key = build_offset_key("g", "t", 2)
    scene.offsets.replay(key, build_offset_value(value), PLAIN)
    assert scene.offsets.committed("g", "t", 2) == value
    assert scene.offsets.committed("g", "t", 3) is None
    assert scene.offsets.committed("g", "u", 2) is None
    assert scene.offsets.committed("h", "t", 2) is None


def test_a_refused_commit_leaves_nothing() -> None:
    """After a failed append the group has no offsets and the client gets an error."""
    scene = OffsetsScene()
    scene.log.refuses = True
    scene.commit("g", "t", 0, 5)
    scene.log.refused[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not scene.offsets.has("g")


def test_offsets_of_a_transaction_are_unstable_until_it_ends() -> None:
    """Stable fetches are refused from the append until the end of the transaction."""
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


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    """After an abort the previous offsets apply."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 3)
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit_in_transaction(1, "h", "t", 0, 5)
    scene.end(1, commits=False)
    assert scene.everything() == {OffsetKey("g", "t", 0): 3}
    assert not scene.offsets.has("h")


def test_what_could_not_be_appended_is_not_unstable() -> None:
    """After a failed append no marker follows, so the partition stays stable."""
    scene = OffsetsScene()
    scene.log.refuses = True
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    assert not scene.offsets.is_unstable("g", "t", 0)
    scene.log.refused[0](ErrorCode.INVALID_PRODUCER_EPOCH)
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


def test_a_later_plain_commit_stays() -> None:
    """A plain commit behind transactional offsets survives the end of the transaction."""
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit("g", "t", 0, 9)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 9
    assert everything(scene.replayed()) == scene.everything()


def test_an_earlier_plain_commit_gives_way() -> None:
    """Transactional offsets behind a plain commit win, even if they are smaller."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 9)
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 5


def test_a_transaction_may_commit_a_partition_twice() -> None:
    """The second commit of one transaction wins."""
    scene = OffsetsScene()
    scene.commit_in_transaction(1, "g", "t", 0, 5)
    scene.commit_in_transaction(1, "g", "t", 0, 7)
    scene.end(1, commits=True)
    assert scene.offset("g", "t", 0) == 7


def test_deleted_offsets_do_not_come_back() -> None:
    """A deletion covers pending commits and open transactions."""
    scene = OffsetsScene()
    scene.commit("g", "t", 0, 5)
    scene.log.commit()
    scene.commit("g", "t", 1, 5)
    scene.commit_in_transaction(1, "g", "t", 2, 5)
    scene.remove("g")
    assert [key.partition for key in by_key(scene)] == [0, 1, 2]
    scene.log.commit()
    assert scene.everything() == {}
    scene.end(1, commits=True)
    assert scene.everything() == {}
    assert not scene.offsets.has("g")


def by_key(scene: OffsetsScene) -> list[OffsetKey]:
    return [parse_offset_key(key) for key, _ in scene.log.written[-1].records]


def test_only_what_is_wanted_is_deleted() -> None:
    """Other partitions and groups keep their offsets."""
    scene = OffsetsScene()
    for group in ("g", "h"):
        for partition in (0, 1):
            scene.commit(group, "t", partition, 5)
    scene.log.commit()
    scene.offsets.remove(scene.offsets.tombstones("g", lambda topic, partition: partition == 1), scene.answers.append)
    scene.log.commit()
    assert list(scene.everything()) == [OffsetKey("g", "t", 0), OffsetKey("h", "t", 0), OffsetKey("h", "t", 1)]


def test_a_value_that_nobody_can_read_fails_the_load() -> None:
    """A value of an unknown version is an error, because its offset would be lost."""
    offsets = OffsetsScene().offsets
    key = build_offset_key("g", "t", 0)
    with pytest.raises(ProtocolError, match="OffsetCommitValue: version 7"):
        offsets.replay(key, b"\x00\x07" + bytes(30), PLAIN)


def test_an_unloaded_shard_knows_nothing() -> None:
    """After unloading, memory is empty and pending appends are still answered."""
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
def test_memory_is_what_kafkas_rule_says(steps: list[tuple[object, ...]]) -> None:
    """For any interleaving of commits, transactions and deletions, memory matches the log."""
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
    expected = by_kafkas_rule(scene.log.written)
    assert scene.everything() == expected
    replayed = scene.replayed()
    assert everything(replayed) == expected
    for producer_id in (1, 2, 3):
        scene.end(producer_id, commits=True)
        replayed.end_transaction(producer_id, True)
    assert scene.everything() == everything(replayed) == by_kafkas_rule(scene.log.written)
    assert_nothing_pends(scene.offsets)


def assert_nothing_pends(offsets: Offsets) -> None:
    for group in ("g", "h"):
        assert not offsets.is_changing(group)
        assert offsets.has(group) == (group in offsets.group_ids())


def test_many_offsets_fit_into_memory() -> None:
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
