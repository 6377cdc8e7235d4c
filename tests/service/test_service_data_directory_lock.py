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


def error(code: int):
    """Return a function that fails with an error."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def refused(directory: Path) -> SettingsError:
    """Return the error of a claim that fails, and check that it leaves no descriptor open."""
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SettingsError) as raised:
        claim_directory(directory, "1", 0)
    assert os.listdir("/proc/self/fd") == before
    return raised.value


def test_cluster_in_another_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process has no ID in this container, and cannot be stopped from it."""
    monkeypatch.setattr(fcntl, "lockf", error(errno.EAGAIN))
    monkeypatch.setattr(data_directory_lock, "_lock_owner", lambda _: 0)
    found = refused(tmp_path)
    assert isinstance(found, DirectoryInUse)
    advice = "stop it there, or choose another --data-dir"
    assert str(found) == f"{tmp_path} is in use by a cluster in another container: {advice}"


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file, although the owner of a lock cannot be read either."""
    for name in ("lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, error(errno.ENOLCK))
    assert str(refused(tmp_path)) == f"{tmp_path}/kreplica.pid cannot be locked: No locks available"


def test_state_that_cannot_be_written(tmp_path: Path) -> None:
    """The error names the file, and the lock is released."""
    (tmp_path / f"{STATE_FILE}.new").mkdir()
    assert str(refused(tmp_path)) == f"{tmp_path}/{STATE_FILE}.new cannot be written: Is a directory"
    (tmp_path / f"{STATE_FILE}.new").rmdir()
    claim_directory(tmp_path, "1", 0).release()
