"""Groups that have only offsets: created by the first commit, removed with the last offset."""

from __future__ import annotations

import pytest
from classic_scene import ClassicScene
from offsets_scene import values

from kreplica.errors import ErrorCode
from kreplica.groups.offset_commits import Committer, commit, is_metadata_acceptable, is_writable
from kreplica.groups.offset_expiry import TOMBSTONES_MAX

SIMPLE = Committer("simple")


@pytest.fixture
def scene() -> ClassicScene:
    return ClassicScene()


def commit_offset(scene: ClassicScene, offset: int = 5, committer: Committer = SIMPLE) -> list[ErrorCode]:
    """Commit an offset, leaving the append pending; return a list to which the response is appended."""
    answers: list[ErrorCode] = []
    commit(scene.shard, committer, values("t", 0, offset), answers.append)
    return answers


def test_first_commit_creates_a_group(scene: ClassicScene) -> None:
    """The first commit creates a group that has neither members nor a protocol."""
    answers = commit_offset(scene)
    assert answers == []
    scene.log.commit()
    assert answers == [ErrorCode.NONE]
    assert (scene.shard.group("simple").state_name, scene.shard.group("simple").protocol_type) == ("Empty", "")


def test_failed_commit_creates_no_group(scene: ClassicScene) -> None:
    answers = commit_offset(scene)
    scene.log.reject(ErrorCode.MESSAGE_TOO_LARGE)
    assert answers == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert scene.shard.group("simple") is None


def test_late_commit_recreates_its_group(scene: ClassicScene) -> None:
    """If the record is committed after the request has failed, the group is created again."""
    answers = commit_offset(scene)
    _, on_committed, answer = scene.log.waiting.popleft()
    answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.shard.group("simple") is None
    on_committed()
    assert scene.shard.offsets.committed("simple", "t", 0).offset == 5
    assert scene.shard.group("simple").state_name == "Empty"


def test_commit_after_a_deletion_recreates_the_group(scene: ClassicScene) -> None:
    commit_offset(scene, 5)
    scene.log.commit()
    deleted: list[ErrorCode] = []
    scene.shard.delete("simple", deleted.append)
    commit_offset(scene, 6)
    scene.log.commit()
    assert deleted == [ErrorCode.NONE]
    assert scene.shard.offsets.committed("simple", "t", 0).offset == 6
    assert scene.shard.group("simple") is not None
    scene.fail_over()
    assert scene.shard.offsets.committed("simple", "t", 0).offset == 6
    assert scene.shard.group("simple") is not None


def test_group_of_many_offsets_is_deleted_in_several_batches(scene: ClassicScene) -> None:
    """The deletion is answered once its last batch is committed."""
    count = 2 * TOMBSTONES_MAX + 1
    many = [("t", [(index, values("t", 0, 1)[0][1][0][1]) for index in range(count)])]
    commit(scene.shard, SIMPLE, many, lambda code: None)
    scene.log.commit()
    sizes: list[int] = []
    scene.log.on_append = lambda records: sizes.append(len(records))
    deleted: list[ErrorCode] = []
    scene.shard.delete("simple", deleted.append)
    assert deleted == []
    scene.log.commit()
    assert (sizes, deleted) == ([TOMBSTONES_MAX, TOMBSTONES_MAX, 1], [ErrorCode.NONE])
    assert scene.shard.group("simple") is None
    scene.fail_over()
    assert scene.shard.group("simple") is None


def test_partially_failed_deletion(scene: ClassicScene) -> None:
    """A partially failed deletion returns an error and can be repeated."""
    many = [("t", [(index, values("t", 0, 1)[0][1][0][1]) for index in range(TOMBSTONES_MAX + 1)])]
    commit(scene.shard, SIMPLE, many, lambda code: None)
    scene.log.commit()
    deleted: list[ErrorCode] = []
    scene.shard.delete("simple", deleted.append)
    records, on_committed, answer = scene.log.waiting.popleft()
    scene.log.records += records
    on_committed()
    answer(ErrorCode.NONE)
    scene.log.reject(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert deleted == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.shard.offsets.partitions_of("simple") == [("t", [TOMBSTONES_MAX])]
    scene.shard.delete("simple", deleted.append)
    scene.log.commit()
    assert deleted[1:] == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("text", "fits"),
    [("", True), ("x" * 10, True), ("☃" * 10, True), ("x" * 11, False)],
)
def test_metadata_limit_is_in_characters(text: str, fits: bool) -> None:
    assert is_metadata_acceptable(text, 10) is fits


def test_record_strings_are_bounded() -> None:
    """Strings in records are limited to 32,767 bytes, whatever the settings."""
    assert is_metadata_acceptable("x" * 32_767, 100_000)
    assert not is_metadata_acceptable("x" * 32_768, 100_000)
    assert not is_metadata_acceptable("☃" * 11_000, 100_000)
    assert is_writable("x" * 32_767)
    assert not is_writable("x" * 32_768)
    assert not is_writable("☃" * 11_000)
