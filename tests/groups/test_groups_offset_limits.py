"""Limits on the memory of committed offsets."""

from __future__ import annotations

from typing import cast

import pytest
from offsets_scene import NOT_TRANSACTIONAL, OffsetsScene, header_of, values

from kreplica.coordination.state_log import StateLog
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.offset_memory import OFFSET_BYTES, PENDING_BYTES, OffsetBounds, OffsetMemory
from kreplica.groups.offsets import Offsets

ADDRESS, OTHER = "/10.0.0.1", "/10.0.0.2"
ENTRY_BYTES = OFFSET_BYTES + len(values("t", 0, 5)[0][1][0][1])
UNLIMITED = 10**9


class LimitedScene(OffsetsScene):
    """Offsets with limits given as numbers of offsets."""

    def __init__(self, group: int = UNLIMITED, address: int = UNLIMITED, broker: int = UNLIMITED) -> None:
        super().__init__()
        self.memory = OffsetMemory(OffsetBounds(group * ENTRY_BYTES, address * ENTRY_BYTES, broker * ENTRY_BYTES))
        self.offsets = Offsets(cast(StateLog, self.log), self.memory)

    def code(self, group: str, partition: int, address: str = ADDRESS, offset: int = 5) -> ErrorCode:
        """Commit one offset; return its error code."""
        try:
            self.offsets.commit(group, values("t", partition, offset), self.answers.append, address=address)
        except KafkaError as error:
            return error.code
        self.log.commit()
        return self.answers.pop()

    def pending_code(self, producer_id: int, group: str, partition: int, address: str = ADDRESS) -> ErrorCode:
        """Commit one offset in a transaction; return its error code."""
        try:
            self.offsets.commit_in_transaction(
                group, values("t", partition, 6), (producer_id, 0), self.answers.append, None, address
            )
        except KafkaError as error:
            return error.code
        self.log.commit()
        return self.answers.pop()


NONE, TOO_LARGE, RETRIABLE = (
    ErrorCode.NONE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def test_offsets_of_one_group_are_bounded() -> None:
    """A group at its limit refuses new partitions but not known ones; another group is not affected."""
    scene = LimitedScene(group=3)
    assert [scene.code("g", number) for number in range(4)] == [NONE] * 3 + [TOO_LARGE]
    assert [scene.code("g", number, offset=9) for number in range(3)] == [NONE] * 3
    assert scene.code("other", 3) is NONE
    assert scene.all_offsets() == {**{("g", "t", number): 9 for number in range(3)}, ("other", "t", 3): 5}
    assert scene.memory.rejected == 1


def test_offsets_of_one_address_are_bounded() -> None:
    """Groups of an address at its limit cannot grow; a group of another address is not affected."""
    scene = LimitedScene(address=3)
    assert [scene.code(f"g{number}", 0) for number in range(4)] == [NONE] * 3 + [TOO_LARGE]
    assert scene.code("other", 0, OTHER) is NONE
    assert scene.code("g0", 0, OTHER, offset=9) is NONE
    assert scene.memory.held_by(ADDRESS) == 3 * ENTRY_BYTES


def test_offsets_of_the_broker_are_bounded() -> None:
    """The broker's limit applies to all addresses together; existing offsets can still be updated."""
    scene = LimitedScene(broker=3)
    codes = [scene.code(f"g{number}", 0, f"/10.0.0.{number}") for number in range(4)]
    assert codes == [NONE] * 3 + [TOO_LARGE]
    assert scene.code("g0", 0, "/10.0.0.0", offset=9) is NONE
    scene.remove("g1")
    scene.log.commit()
    assert scene.code("g3", 0) is NONE


def test_offsets_of_open_transactions_are_bounded() -> None:
    """Transactional commits above the limit get a retriable error until transactions end; others are accepted."""
    scene = LimitedScene(broker=40)
    assert scene.code("g", 0) is NONE
    fits = (49 * ENTRY_BYTES) // (PENDING_BYTES + ENTRY_BYTES - OFFSET_BYTES)
    codes = [scene.pending_code(number, "g", 0) for number in range(fits + 1)]
    assert codes == [NONE] * fits + [RETRIABLE]
    assert RETRIABLE.retriable
    for producer_id in range(fits):
        scene.end(producer_id, commits=True)
    assert scene.memory.held_bytes == ENTRY_BYTES
    assert scene.pending_code(fits, "g", 0) is NONE
    assert scene.code("g", 0, offset=9) is NONE


def test_transactions_replace_offsets_at_the_limit() -> None:
    """At the limit, a transactional commit is accepted for a known partition and refused for a new one."""
    scene = LimitedScene(broker=40)
    assert {scene.code("g", number) for number in range(40)} == {NONE}
    assert scene.pending_code(1, "g", 0) is NONE
    assert scene.pending_code(2, "g", 40) is RETRIABLE
    scene.end(1, commits=True)
    assert (scene.offset("g", "t", 0), scene.memory.held_bytes) == (6, 40 * ENTRY_BYTES)


@pytest.mark.parametrize("commits", [True, False])
def test_memory_of_a_transaction_is_charged_to_its_address(commits: bool) -> None:
    """The first transactional commit is charged, even if the group has no other offsets."""
    scene = LimitedScene()
    scene.pending_code(1, "g", 0)
    assert scene.memory.held_by(ADDRESS) == PENDING_BYTES + ENTRY_BYTES - OFFSET_BYTES
    scene.end(1, commits=commits)
    assert scene.memory.held_by(ADDRESS) == scene.memory.held_bytes == (ENTRY_BYTES if commits else 0)


def test_pending_appends_are_charged() -> None:
    """Commits that are not yet in the log are charged, and released if they fail."""
    scene = LimitedScene(group=2)
    for partition in range(2):
        scene.offsets.commit("g", values("t", partition, 5), scene.answers.append, address=ADDRESS)
    with pytest.raises(KafkaError):
        scene.offsets.commit("g", values("t", 2, 5), scene.answers.append, address=ADDRESS)
    for _, answer in scene.log.waiting:
        answer(RETRIABLE)
    scene.log.waiting.clear()
    assert (scene.answers, scene.memory.held_bytes) == ([RETRIABLE] * 2, 0)


def test_loaded_offsets_are_charged_to_no_address() -> None:
    """A loaded offset has no address until a client commits it; unloading a shard releases its memory."""
    scene = LimitedScene(broker=2)
    for number in range(2):
        scene.code(f"g{number}", 0)
    loaded = LimitedScene(broker=2)
    for _, records, _ in scene.log.entries:
        for key, value in records:
            loaded.offsets.replay(key, value, header_of(NOT_TRANSACTIONAL, records))
    assert (loaded.memory.held_bytes, loaded.memory.held_by("")) == (2 * ENTRY_BYTES, 2 * ENTRY_BYTES)
    assert loaded.code("g2", 0) is TOO_LARGE
    assert loaded.code("g0", 0, offset=9) is NONE
    assert (loaded.memory.held_by(""), loaded.memory.held_by(ADDRESS)) == (ENTRY_BYTES, ENTRY_BYTES)
    loaded.offsets.unload()
    assert loaded.memory.held_bytes == 0
