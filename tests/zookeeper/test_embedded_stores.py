"""Guarantees of the coordinator's stores, and how they handle damaged files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from kreplica.errors import StorageError
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.zookeeper.embedded.disk_store import DiskStore, decode_changes, encode_changes
from kreplica.zookeeper.embedded.sessions import SessionRow
from kreplica.zookeeper.embedded.sqlite_store import ROWS_PER_STATEMENT_MAX, SqliteStore
from kreplica.zookeeper.embedded.store import Changes, Image, Store
from kreplica.zookeeper.embedded.znode import ZnodeRow
from kreplica.zookeeper.records import Acl


class SynchronousOffload:
    """An ``Offload`` that runs functions synchronously."""

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        try:
            return succeed(function(*args, **kwargs))
        except Exception:
            return fail(Failure())

    def stop(self) -> None: ...


def result(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred that has fired, or raise its error."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


class StoreLocation(Protocol):
    """A location in which a store can be opened repeatedly."""

    def open(self) -> Store: ...


class SqliteLocation:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self) -> SqliteStore:
        return SqliteStore(str(self.directory), SynchronousOffload())


class DiskLocation:
    def __init__(self) -> None:
        self.disk = MemoryDisk(lambda: 0, directories=["/data"])

    def open(self) -> DiskStore:
        return DiskStore("/data", self.disk, SynchronousOffload(), log_size_min=2_000)


@pytest.fixture(params=["sqlite", "disk"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """A location for each kind of store."""
    return SqliteLocation(tmp_path) if request.param == "sqlite" else DiskLocation()


def znode(path: str, data: bytes | None = b"data", zxid: int = 1, acl: tuple[Acl, ...] | None = None) -> ZnodeRow:
    return ZnodeRow(path, data, acl, zxid, zxid + 1, zxid + 2, 1000, 2000, 3, 4, 5, -(1 << 63))


def load(store: Store) -> tuple[int, dict[str, ZnodeRow], dict[int, SessionRow]]:
    """Return the contents of a store in comparable form."""
    image: Image = result(store.load())
    return (
        image.zxid,
        {row.path: row for row in image.znodes},
        {row.session_id: row for row in image.sessions},
    )


def test_new_store_is_empty(location: StoreLocation) -> None:
    assert load(location.open()) == (0, {}, {})


def test_all_fields_are_restored(location: StoreLocation) -> None:
    """All fields are restored, including large numbers, missing data and ACLs."""
    rows = [
        znode("/a", None),
        znode("/ä/文", b"\0\xff" * 1000, zxid=(1 << 62)),
        znode("/acl", acl=(Acl(31, "digest", "ann:x="), Acl(1, "world", "anyone"))),
    ]
    sessions = [SessionRow((1 << 56) - 1, 4000, b"p" * 16)]
    store = location.open()
    load(store)
    result(store.append(Changes((1 << 62) + 5, rows, (), sessions)))
    result(store.close())
    assert load(location.open()) == ((1 << 62) + 5, {row.path: row for row in rows}, {sessions[0][0]: sessions[0]})


def test_later_changes_replace_and_remove_earlier_ones(location: StoreLocation) -> None:
    """The state after the last group is restored, with the last transaction ID even if that group is empty."""
    store = location.open()
    load(store)
    result(store.append(Changes(1, [znode("/a"), znode("/b")], (), [SessionRow(1, 1, b""), SessionRow(2, 2, b"")])))
    result(store.append(Changes(2, [znode("/a", b"new")], ["/b", "/never-was"], [SessionRow(2, 3, b"")], [1, 9])))
    result(store.append(Changes(3)))
    result(store.close())
    assert load(location.open()) == (3, {"/a": znode("/a", b"new")}, {2: SessionRow(2, 3, b"")})


@pytest.mark.parametrize("count", [1, 2, 3, ROWS_PER_STATEMENT_MAX, ROWS_PER_STATEMENT_MAX + 1, 3000])
def test_groups_of_any_size_are_written_completely(location: StoreLocation, count: int) -> None:
    """No row is lost or replaced by another, however rows are combined into statements."""
    store = location.open()
    load(store)
    rows = [znode(f"/{number}", b"%d" % number) for number in range(count)]
    result(store.append(Changes(1, rows)))
    result(store.append(Changes(2, (), [row.path for row in rows[::2]])))
    result(store.close())
    assert load(location.open())[1] == {row.path: row for row in rows[1::2]}


def test_store_is_reopened_many_times(location: StoreLocation) -> None:
    """Each time, all earlier changes are restored and a few are added, across several compactions."""
    expected = {}
    for round_ in range(12):
        store = location.open()
        assert load(store)[1] == expected
        for number in range(3):
            row = znode(f"/{(round_ * 3 + number) % 7}", bytes([round_]) * 200)
            expected[row.path] = row
            result(store.append(Changes(round_ * 3 + number + 1, [row])))
        result(store.close())
    assert load(location.open()) == (36, expected, {})


def test_closed_store_refuses_writes(location: StoreLocation) -> None:
    """Appending before loading or after closing is an error; closing twice is not."""
    store = location.open()
    with pytest.raises(StorageError):
        result(store.append(Changes(1)))
    load(store)
    result(store.close())
    result(store.close())
    with pytest.raises(StorageError):
        result(store.append(Changes(1)))


# --- SQLite ---


def test_other_file_is_refused(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    (tmp_path / "coordinator.db").write_bytes(b"no database" * 500)
    with pytest.raises(StorageError, match=r"coordinator\.db cannot be used.*not a database"):
        load(SqliteLocation(tmp_path).open())


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "coordinator.db")
    database.execute("pragma user_version=99")
    database.close()
    with pytest.raises(StorageError, match="layout 99"):
        load(SqliteLocation(tmp_path).open())


def test_database_can_be_read_by_other_programs(tmp_path: Path) -> None:
    """Paths and data are plain columns."""
    store = SqliteLocation(tmp_path).open()
    load(store)
    result(store.append(Changes(1, [znode("/a", b"hello")])))
    reader = sqlite3.connect(f"file:{tmp_path}/coordinator.db?mode=ro", uri=True)
    assert reader.execute("select path, data from znodes").fetchall() == [("/a", b"hello")]
    reader.close()
    result(store.close())


# --- the disk store ---


def write_changes(location: DiskLocation, count: int) -> int:
    """Append the given number of changes to a new store, and return the log size before the last one."""
    store = location.open()
    load(store)
    size = 0
    for number in range(1, count + 1):
        size = store.log_size
        result(store.append(Changes(number, [znode(f"/{number}")])))
    result(store.close())
    return size


def test_torn_tail_is_truncated_at_any_byte() -> None:
    """If only part of the last write is on disk, the store opens without that write and continues."""
    complete = DiskLocation()
    start = write_changes(complete, 3)
    data = complete.disk.read_file("/data/log-0")
    for size in range(start, len(data)):
        location = DiskLocation()
        location.disk.write_file("/data/log-0", data[:size])
        store = location.open()
        assert load(store)[:2] == (2, {"/1": znode("/1"), "/2": znode("/2")})
        result(store.append(Changes(7, [znode("/7")])))
        result(store.close())
        assert sorted(load(location.open())[1]) == ["/1", "/2", "/7"]


@pytest.mark.parametrize("junk", [bytes(1), bytes(100), b"\xff" * 100])
def test_garbage_after_the_log_is_truncated(junk: bytes) -> None:
    """A file system often leaves zeros after a torn write."""
    location = DiskLocation()
    write_changes(location, 2)
    location.disk.write_file("/data/log-0", location.disk.read_file("/data/log-0") + junk)
    assert load(location.open())[0] == 2


def test_damage_in_the_middle_is_not_a_torn_tail() -> None:
    """Damage in the middle affects acknowledged changes, so the store refuses to open."""
    location = DiskLocation()
    write_changes(location, 3)
    location.disk.flip_bit("/data/log-0", 20)
    with pytest.raises(StorageError, match="damaged at byte 0"):
        load(location.open())


def test_damaged_snapshot_is_refused() -> None:
    """The error names the file."""
    location = DiskLocation()
    write_changes(location, 60)
    (snapshot,) = (name for name in location.disk.list_directory("/data") if name.startswith("snapshot"))
    location.disk.flip_bit(f"/data/{snapshot}", 40)
    with pytest.raises(StorageError, match=f"{snapshot} is damaged"):
        load(location.open())


def test_old_logs_and_snapshots_are_removed() -> None:
    location = DiskLocation()
    store = location.open()
    load(store)
    for number in range(1, 200):
        result(store.append(Changes(number, [znode("/a")])))
    result(store.close())
    names = location.disk.list_directory("/data")
    assert len(names) == 2
    assert load(location.open()) == (199, {"/a": znode("/a")}, {})


def test_append_without_a_sync_fails() -> None:
    """If the sync fails, the append fails too, so it is not considered durable."""
    location = DiskLocation()
    store = location.open()
    load(store)
    location.disk.fail("sync", "/data/log-*")
    with pytest.raises(OSError, match="Input/output error"):
        result(store.append(Changes(1)))


def test_changes_round_trip() -> None:
    changes = Changes(5, [znode("/a")], ["/b"], [SessionRow(1, 2, b"p")], [3])
    encoded = encode_changes(changes)
    assert decode_changes(encoded) == changes
