"""Production store: one SQLite file in WAL mode, synced at every commit.

Each group of transactions is one SQLite transaction, run in a thread.  One statement writes many rows, because it runs
without the GIL, whereas ``executemany`` acquires the GIL for every row.

The file can be read while the server runs: ``sqlite3 coordinator.db 'select path, data from znodes'``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ProtocolError, StorageError
from kreplica.runtime.offload import Offload
from kreplica.zookeeper.embedded.sessions import SessionRow
from kreplica.zookeeper.embedded.store import Changes, Image
from kreplica.zookeeper.embedded.znode import ZnodeRow
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import Acl, pack_acl, read_acl

FILE_NAME = "coordinator.db"
LAYOUT_VERSION = 1

# This number times the number of columns stays below SQLite's limit of 32,766 parameters.
ROWS_PER_STATEMENT_MAX = 1024

_SCHEMA = """
create table if not exists znodes (
    path text primary key, data blob, acl blob, czxid integer, mzxid integer, pzxid integer, ctime_ms integer,
    mtime_ms integer, version integer, creates integer, acl_version integer, owner integer
) without rowid;
create table if not exists sessions (session_id integer primary key, timeout_ms integer, password blob);
create table if not exists progress (only integer primary key check (only = 0), zxid integer);
"""


class SqliteStore:
    """A ``Store`` in an existing directory, which no other store may use."""

    def __init__(self, directory: str, offload: Offload) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        self._offload = offload
        self._database: sqlite3.Connection | None = None

    def load(self) -> Deferred[Image]:
        return self._offload.run(self._load)

    def append(self, changes: Changes) -> Deferred[None]:
        return self._offload.run(self._write, changes)

    def close(self) -> Deferred[None]:
        return self._offload.run(self._close)

    def _load(self) -> Image:
        try:
            self._database = database = _open(self.path)
            progress = database.execute("select zxid from progress").fetchone()
            return Image(
                progress[0] if progress else 0,
                [_znode_row(row) for row in database.execute("select * from znodes")],
                list(map(SessionRow._make, database.execute("select * from sessions"))),
            )
        except (sqlite3.Error, ProtocolError) as error:
            raise StorageError(f"{self.path} cannot be used as the embedded ZooKeeper's store: {error}") from error

    def _write(self, changes: Changes) -> None:
        database = self._database
        if database is None:
            raise StorageError(f"{self.path} is not open")
        try:
            _commit(database, changes)
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be written: {error}") from error

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


def _open(path: str) -> sqlite3.Connection:
    _make_private(path)
    # ``offload`` may run each call in a different thread, but the calls never overlap.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=full")
    version = database.execute("pragma user_version").fetchone()[0]
    if version not in (0, LAYOUT_VERSION):
        database.close()
        raise StorageError(f"{path} has layout {version}; this version of kreplica supports layout {LAYOUT_VERSION}")
    database.executescript(_SCHEMA)
    database.execute(f"pragma user_version={LAYOUT_VERSION}")
    return database


def _make_private(path: str) -> None:
    """Remove other users' access to the database, which contains the whole state of the cluster.

    SQLite creates its journals with the mode of the database.
    """
    for file in (path, f"{path}-wal", f"{path}-shm"):
        try:
            mode = os.stat(file).st_mode & 0o777
            if mode & 0o077:
                os.chmod(file, mode & 0o700)
        except FileNotFoundError:
            pass


def _commit(database: sqlite3.Connection, changes: Changes) -> None:
    database.execute("begin immediate")
    _insert(database, "znodes", [_with_packed_acl(row) for row in changes.znodes])
    _insert(database, "sessions", changes.sessions)
    _delete(database, "znodes", "path", changes.deleted_paths)
    _delete(database, "sessions", "session_id", changes.closed_sessions)
    database.execute("replace into progress values (0, ?)", (changes.zxid,))
    database.execute("commit")


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    for start in range(0, len(rows), ROWS_PER_STATEMENT_MAX):
        part = _pad(rows[start : start + ROWS_PER_STATEMENT_MAX])
        row_placeholders = f"({','.join('?' * len(part[0]))})"
        all_placeholders = ",".join([row_placeholders] * len(part))
        database.execute(f"replace into {table} values {all_placeholders}", list(chain.from_iterable(part)))


def _delete(database: sqlite3.Connection, table: str, column: str, keys: Sequence[Any]) -> None:
    for start in range(0, len(keys), ROWS_PER_STATEMENT_MAX):
        part = _pad(keys[start : start + ROWS_PER_STATEMENT_MAX])
        database.execute(f"delete from {table} where {column} in ({','.join('?' * len(part))})", part)


def _pad(rows: Sequence[Any]) -> list[Any]:
    """Repeat the last row up to a power of two, so that a few prepared statements cover all row counts."""
    return [*rows, *[rows[-1]] * ((1 << (len(rows) - 1).bit_length()) - len(rows))]


def _with_packed_acl(row: ZnodeRow) -> tuple[Any, ...]:
    return row if row.acl is None else row._replace(acl=pack_acl(row.acl))  # type: ignore[arg-type]


def _znode_row(row: Sequence[Any]) -> ZnodeRow:
    path, data, acl = row[:3]
    return ZnodeRow(path, data, None if acl is None else _unpacked_acl(acl), *row[3:])


def _unpacked_acl(packed: bytes) -> tuple[Acl, ...]:
    reader = Reader(packed, name="stored ACL")
    acl = read_acl(reader)
    reader.finish()
    return acl
