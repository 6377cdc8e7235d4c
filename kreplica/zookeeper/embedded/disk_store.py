"""Store of log and snapshot files on the ``Disk`` interface; the simulator runs it on its simulated disk.

``snapshot-N`` contains the whole state, ``log-N`` the changes since then. Both consist of frames: length and CRC32 of
the body, then the body. A new snapshot is written to a temporary file, synced and renamed. Then the next log is
created, and the previous snapshot and log are deleted. Only one append runs at a time, so only the last frame of a log
can be torn; ``load`` truncates the log before such a frame.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from twisted.internet.defer import Deferred

from kreplica.errors import ProtocolError, StorageError, reason_of
from kreplica.runtime.disk import Disk, File
from kreplica.runtime.offload import Offload
from kreplica.zookeeper.embedded.sessions import SessionRow
from kreplica.zookeeper.embedded.store import Changes, Image
from kreplica.zookeeper.embedded.znode import ZnodeRow
from kreplica.zookeeper.jute import Reader, pack_buffer, pack_int32, pack_int64, pack_text, pack_texts
from kreplica.zookeeper.records import pack_acl, read_acl

# A new snapshot replaces the log if the log is longer than both LOG_SIZE_MIN and LOG_GROWTH times the last snapshot.
LOG_SIZE_MIN = 1 << 20
LOG_GROWTH = 4

_FRAME = Struct(">II")
_NUMBERS = Struct(">qqqqqiiiq")
_SESSION = Struct(">qi")
_NAME = re.compile(r"(snapshot|log)-(\d+)")


class DiskStore:
    """A ``Store`` in an existing directory, which no other store may use.

    :ivar log_size: size of the current log in bytes.
    """

    def __init__(self, directory: str, disk: Disk, offload: Offload, log_size_min: int = LOG_SIZE_MIN) -> None:
        self._directory = directory
        self._disk = disk
        self._offload = offload
        self._log_size_min = log_size_min
        self._zxid = 0
        self._znodes: dict[str, ZnodeRow] = {}
        self._sessions: dict[int, SessionRow] = {}
        self._number = 0
        self._log: File | None = None
        self.log_size = 0
        self._snapshot_size = 0

    def load(self) -> Deferred[Image]:
        return self._offload.run(self._load)

    def append(self, changes: Changes) -> Deferred[None]:
        return self._offload.run(self._append, changes)

    def close(self) -> Deferred[None]:
        return self._offload.run(self._close)

    # --- writing ---

    def _append(self, changes: Changes) -> None:
        log = self._log
        if log is None:
            raise StorageError(f"the embedded ZooKeeper's store in {self._directory} is not open")
        self.log_size += log.write_at(self.log_size, [_frame(encode_changes(changes))])
        log.sync()
        self._apply(changes)
        if self.log_size > max(self._log_size_min, LOG_GROWTH * self._snapshot_size):
            self._roll()

    def _apply(self, changes: Changes) -> None:
        self._zxid = changes.zxid
        self._znodes.update((row.path, row) for row in changes.znodes)
        self._sessions.update((row.session_id, row) for row in changes.sessions)
        for path in changes.deleted_paths:
            self._znodes.pop(path, None)
        for session_id in changes.closed_sessions:
            self._sessions.pop(session_id, None)

    def _roll(self) -> None:
        """Write the next snapshot, start an empty log, and remove the previous snapshot and log."""
        state = Changes(self._zxid, list(self._znodes.values()), (), list(self._sessions.values()))
        snapshot = _frame(encode_changes(state))
        self._disk.write_file(self._path("snapshot", self._number + 1), snapshot)
        self._snapshot_size = len(snapshot)
        self._close()
        self._number += 1
        self._open_log()
        for kind in ("snapshot", "log"):
            if self._disk.exists(self._path(kind, self._number - 1)):
                self._disk.remove(self._path(kind, self._number - 1))

    def _open_log(self) -> None:
        self._log = self._disk.open(self._path("log", self._number), create=True)
        self._disk.sync_directory(self._directory)
        self.log_size = self._log.size()

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _path(self, kind: str, number: int) -> str:
        return posixpath.join(self._directory, f"{kind}-{number}")

    # --- reading ---

    def _load(self) -> Image:
        names = [match for name in self._disk.list_directory(self._directory) if (match := _NAME.fullmatch(name))]
        self._number = max((int(match[2]) for match in names if match[1] == "snapshot"), default=0)
        try:
            if self._number:
                self._load_snapshot(self._path("snapshot", self._number))
            self._open_log()
            self._replay()
        except (ProtocolError, OSError) as error:
            self._close()
            raise StorageError(
                f"the embedded ZooKeeper's store in {self._directory} cannot be read: {reason_of(error)}"
            ) from error
        for match in names:
            if int(match[2]) != self._number:
                self._disk.remove(posixpath.join(self._directory, match[0]))
        return Image(self._zxid, list(self._znodes.values()), list(self._sessions.values()))

    def _load_snapshot(self, path: str) -> None:
        data = self._disk.read_file(path)
        bodies = list(_bodies(data))
        if len(bodies) != 1 or _FRAME.size + len(bodies[0]) != len(data):
            raise StorageError(f"the snapshot {path} is damaged; restore it, or remove the directory to start empty")
        self._snapshot_size = len(data)
        self._apply(decode_changes(bodies[0]))

    def _replay(self) -> None:
        log = self._log
        assert log is not None
        data = log.read_at(0, log.size())
        valid_size = 0
        for body in _bodies(data):
            self._apply(decode_changes(body))
            valid_size += _FRAME.size + len(body)
        if valid_size < len(data):
            self._check_torn(log.path, data, valid_size)
            log.truncate(valid_size)
            log.sync()
        self.log_size = valid_size

    def _check_torn(self, path: str, data: bytes, valid_size: int) -> None:
        """Check that the first invalid frame can result from a crash.

        :raise StorageError: a valid frame follows the invalid one, so the log is corrupt.
        """
        if len(data) - valid_size < _FRAME.size:
            return
        size, _ = _FRAME.unpack_from(data, valid_size)
        if next(_bodies(data[valid_size + _FRAME.size + size :]), None) is not None:
            where = f"{path} is damaged at byte {valid_size}"
            raise StorageError(f"{where}, but valid frames follow; restore the directory from a backup")


def _frame(body: bytes) -> bytes:
    return _FRAME.pack(len(body), crc32(body)) + body


def _bodies(data: bytes) -> Iterator[bytes]:
    """Yield the bodies of the frames before the first invalid one."""
    position = 0
    while len(data) - position >= _FRAME.size:
        size, crc = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        body = data[position : position + size]
        # Zeros left by a torn write look like an empty body with a matching CRC; no empty body is ever written.
        if not size or len(body) != size or crc32(body) != crc:
            return
        yield body
        position += size


# --- frame bodies ---


def encode_changes(changes: Changes) -> bytes:
    return b"".join(
        [
            pack_int64(changes.zxid),
            pack_int32(len(changes.znodes)),
            *map(_encode_znode, changes.znodes),
            pack_texts(changes.deleted_paths),
            pack_int32(len(changes.sessions)),
            *(_SESSION.pack(row.session_id, row.timeout_ms) + pack_buffer(row.password) for row in changes.sessions),
            pack_int32(len(changes.closed_sessions)),
            *map(pack_int64, changes.closed_sessions),
        ]
    )


def _encode_znode(row: ZnodeRow) -> bytes:
    acl = b"" if row.acl is None else pack_acl(row.acl)
    return pack_text(row.path) + pack_buffer(row.data) + pack_buffer(acl) + _NUMBERS.pack(*row[3:])


def decode_changes(body: bytes) -> Changes:
    """Decode the result of ``encode_changes``.

    :raise ProtocolError: the body is malformed.
    """
    reader = Reader(body, name="stored changes")
    changes = Changes(
        reader.int64(),
        reader.vector(lambda: _decode_znode(reader), size_min=12 + _NUMBERS.size),
        reader.texts(),
        reader.vector(lambda: _decode_session(reader), size_min=_SESSION.size + 4),
        reader.vector(reader.int64, size_min=8),
    )
    reader.finish()
    return changes


def _decode_znode(reader: Reader) -> ZnodeRow:
    path, data, acl = reader.text(), reader.buffer(), reader.buffer()
    return ZnodeRow(path, data, read_acl(Reader(acl)) if acl else None, *reader.unpack(_NUMBERS))


def _decode_session(reader: Reader) -> SessionRow:
    session_id, timeout_ms = reader.unpack(_SESSION)
    return SessionRow(session_id, timeout_ms, reader.buffer() or b"")
