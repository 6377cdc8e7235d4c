"""Errors of the lock on a data directory."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from kreplica.errors import SettingsError
from kreplica.service.standalone import data_directory_lock
from kreplica.service.standalone.data_directory_lock import STATE_FILE, DirectoryInUse, claim_directory


def raising(code: int):
    """Return a function that raises OSError with the given code."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def claim_error(directory: Path) -> SettingsError:
    """Claim a directory, return the error, and check that no file descriptor is left open."""
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SettingsError) as raised:
        claim_directory(directory, "1", 0)
    assert os.listdir("/proc/self/fd") == before
    return raised.value


def test_cluster_in_another_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not name the other cluster's process, which has no ID in this container."""
    monkeypatch.setattr(fcntl, "lockf", raising(errno.EAGAIN))
    monkeypatch.setattr(data_directory_lock, "_lock_owner", lambda _: 0)
    error = claim_error(tmp_path)
    assert isinstance(error, DirectoryInUse)
    advice = "stop it there, or choose another --data-dir"
    assert str(error) == f"{tmp_path} is in use by a cluster in another container: {advice}"


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the lock file, although the lock's owner cannot be queried either."""
    for name in ("lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, raising(errno.ENOLCK))
    assert str(claim_error(tmp_path)) == f"{tmp_path}/kreplica.pid cannot be locked: No locks available"


def test_state_that_cannot_be_written(tmp_path: Path) -> None:
    """The error names the file, and the lock is released."""
    (tmp_path / f"{STATE_FILE}.new").mkdir()
    assert str(claim_error(tmp_path)) == f"{tmp_path}/{STATE_FILE}.new cannot be written: Is a directory"
    (tmp_path / f"{STATE_FILE}.new").rmdir()
    claim_directory(tmp_path, "1", 0).release()
