"""Lock of a data directory: allows one running cluster, and publishes its process ID, state and addresses.

``kreplica.pid`` contains the process ID and is locked while the process lives (a POSIX record lock).  The kernel
releases the lock when the process ends and reports its owner, so neither a file left by a killed process nor another
program that now has that process ID is mistaken for a running cluster.  ``running.json`` describes the process that
holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kreplica.errors import SettingsError

PID_FILE = "kreplica.pid"
STATE_FILE = "running.json"

STARTING, READY, STOPPING = "starting", "ready", "stopping"

_FLOCK = struct.Struct("@hhqqi4x")
"""``struct flock`` of fcntl(2) on 64-bit Linux: type, whence, start, length, process ID."""


class DirectoryInUse(SettingsError):
    """A cluster is already running on the data directory; the message names its process."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a running cluster, which ``kreplica status`` shows.

    :param state: starting, ready or stopping.
    :param bootstrap_servers: HOST:PORT of each broker; empty before the cluster is ready.
    :param coordinator: HOST:PORT of the embedded ZooKeeper server.
    :param security_directory: directory with the secrets of a secured cluster; None for an open one.
    """

    pid: int
    version: str
    started_ms: int
    state: str = STARTING
    bootstrap_servers: list[str] = field(default_factory=list)
    admin_url: str | None = None
    coordinator: str | None = None
    security_directory: str | None = None


class DirectoryClaim:
    """This process's lock on a data directory.

    The process opens the PID file nowhere else, since closing any descriptor of the file releases the lock.
    """

    def __init__(self, directory: Path, descriptor: int, state: ClusterState) -> None:
        self._directory = directory
        self._descriptor: int | None = descriptor
        self._state = state
        self._write_state()

    def update(self, **changes: Any) -> None:
        """Change fields of the published state."""
        self._state = replace(self._state, **changes)
        self._write_state()

    def release(self) -> None:
        """Remove both files and release the lock; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        # The lock is released last, so that no other process can acquire it while the file is being removed.
        for name in (STATE_FILE, PID_FILE):
            with suppress(OSError):
                (self._directory / name).unlink()
        os.close(descriptor)

    def _write_state(self) -> None:
        new = self._directory / f"{STATE_FILE}.new"
        new.write_text(json.dumps(asdict(self._state), indent=2) + "\n")
        new.replace(self._directory / STATE_FILE)


def claim_directory(directory: Path, version: str, now_ms: int) -> DirectoryClaim:
    """Lock a data directory for this process.

    :param version: version of kreplica, for the published state.
    :raise DirectoryInUse: another process has locked it.
    :raise SettingsError: the PID file cannot be written or locked.
    """
    path = directory / PID_FILE
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
        with ExitStack() as stack:
            stack.callback(os.close, descriptor)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise SettingsError(f"{path} cannot be locked: {error.strerror}") from None
                owner = _lock_owner(descriptor)
                if owner is not None:
                    raise DirectoryInUse(in_use_text(directory, owner)) from None
                continue  # the lock has been released in the meantime
            if not _is_same_file(path, descriptor):
                continue  # the process that held the lock has removed this file
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                claim = DirectoryClaim(directory, descriptor, ClusterState(os.getpid(), version, now_ms))
            except OSError as error:
                raise SettingsError(f"{error.filename or path} cannot be written: {error.strerror}") from None
            stack.pop_all()
            return claim


def in_use_text(directory: Path, owner: int) -> str:
    """Return the message that a cluster is running on a data directory.

    :param owner: its process ID; see ``running_pid``.
    """
    if owner == 0:
        advice = "stop it there, or choose another --data-dir"
        return f"{directory} is in use by a cluster in another container: {advice}"
    advice = f"stop it with `kreplica stop --data-dir {directory}`, or choose another --data-dir"
    return f"{directory} is in use by the cluster with process ID {owner}: {advice}"


def running_pid(directory: Path) -> int | None:
    """Return the ID of the process that runs a cluster on a data directory; None if there is none.

    The ID is 0 if the process is in a container whose processes this one cannot see.

    :raise OSError: the PID file cannot be read.
    """
    try:
        descriptor = os.open(directory / PID_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _lock_owner(descriptor)
    finally:
        os.close(descriptor)


def stale_pid(directory: Path) -> int | None:
    """Return the process ID in the PID file, or None; meaningful only if no cluster is running."""
    try:
        return int((directory / PID_FILE).read_text())
    except (OSError, ValueError):
        return None


def cluster_state(directory: Path, pid: int) -> ClusterState:
    """Return the published state of a running cluster.

    :param pid: result of ``running_pid``; a file that another process wrote is ignored.
    """
    try:
        document: Mapping[str, Any] = json.loads((directory / STATE_FILE).read_text())
        state = ClusterState(**document)
    except (OSError, ValueError, TypeError):
        return ClusterState(pid, "", 0)
    return state if state.pid == pid else ClusterState(pid, "", 0)


def _lock_owner(descriptor: int) -> int | None:
    whole_file = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, owner = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, whole_file))
    return None if kind == fcntl.F_UNLCK else int(owner)


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
