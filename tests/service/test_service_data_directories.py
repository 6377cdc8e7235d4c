"""Data directories that another user controls are refused; a warning names secret files that others can read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogEvent, globalLogPublisher

from kreplica.errors import SettingsError
from kreplica.service.process.broker_process import broker_from_options
from kreplica.service.process.data_directories import check_owners
from kreplica.service.process.options import CoordinatorOptions
from kreplica.service.process.private_files import warn_of_readable_secrets
from kreplica.service.process.zookeeper_process import zookeeper_from_options
from kreplica.settings.broker_settings import load

OTHER_USER = 54321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files, which requires root")


@pytest.fixture
def world_writable(tmp_path: Path) -> Path:
    """A directory in which every user may create files, like /tmp."""
    directory = tmp_path / "world_writable"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def warnings():
    found: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"].name == "warn":
            found.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


@as_root
@pytest.mark.parametrize("below", ["", "data", "data/more"])
def test_directory_created_by_another_user(world_writable, below):
    """A directory in a world-writable directory is refused if it, or its parent there, belongs to another user."""
    foreign = world_writable / "kafka-logs"
    foreign.mkdir()
    os.chown(foreign, OTHER_USER, -1)
    with pytest.raises(SettingsError, match=f"{foreign} belongs to the user with ID {OTHER_USER}"):
        check_owners([str(foreign / below)])


@as_root
def test_symbolic_link_of_another_user(world_writable, tmp_path):
    """The owner of a link controls where the data is, so the link is refused even if its target is the user's own."""
    own = tmp_path / "own"
    own.mkdir()
    link = world_writable / "kafka-logs"
    link.symlink_to(own)
    check_owners([str(link)])
    os.chown(link, OTHER_USER, -1, follow_symlinks=False)
    with pytest.raises(SettingsError, match="is a symbolic link of the user with ID"):
        check_owners([str(link)])
    with pytest.raises(SettingsError, match="is a symbolic link of the user with ID"):
        check_owners([str(link / "data")])


@as_root
def test_target_of_a_link_is_checked(world_writable, tmp_path):
    """A link of the broker's user to another user's directory in a world-writable directory is refused."""
    foreign = world_writable / "kafka-logs"
    foreign.mkdir()
    os.chown(foreign, OTHER_USER, -1)
    link = tmp_path / "link"
    link.symlink_to(foreign)
    with pytest.raises(SettingsError, match="belongs to the user"):
        check_owners([str(link)])


@as_root
def test_volume_of_another_user(tmp_path):
    """Another user's directory is accepted where only that user or root can create files, as for container volumes."""
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, OTHER_USER, -1)
    check_owners([str(volume), str(volume / "data")])


def test_own_directories(world_writable):
    """A directory of the broker's user, or a missing one, is valid even in a world-writable directory."""
    own = world_writable / "own"
    check_owners([str(own)])
    own.mkdir()
    check_owners([str(own), str(own / "data")])


@as_root
def test_broker_refuses_a_directory_of_another_user(world_writable, tmp_path):
    """The broker does not start, and the error names the setting."""
    foreign = world_writable / "kafka-logs"
    foreign.mkdir()
    os.chown(foreign, OTHER_USER, -1)
    file = tmp_path / "broker.properties"
    file.write_text(f"broker.id=1\nzookeeper.connect=127.0.0.1:2181\nlog.dirs={foreign}\n")
    options = {"config": str(file), "environment": False, "overrides": [], "child-of": None}
    with pytest.raises(SettingsError, match=r"Set another directory \(log.dirs or --data-dir\)"):
        broker_from_options(MemoryReactorClock(), options, lambda _: None)


SECRETS = ("kreplica.plugin.audit.password=x", "kreplica.admin.token.file={token}")


@pytest.mark.parametrize("line", SECRETS)
def test_secret_file_readable_by_all(tmp_path, warnings, line):
    """The warning contains the command; a file with mode 600 or 640, or without a secret, causes no warning."""
    token = tmp_path / "token"
    token.write_text("x" * 32)
    file = tmp_path / "broker.properties"
    file.write_text(f"broker.id=1\nzookeeper.connect=127.0.0.1:2181\n{line.format(token=token)}\n")
    secret_file = token if "token" in line else file
    for mode, count in ((0o644, 1), (0o640, 0), (0o600, 0)):
        warnings.clear()
        file.chmod(mode)
        token.chmod(mode)
        warn_of_readable_secrets(str(file), load(file))
        assert [f"chmod 600 {secret_file}" in text for text in warnings] == [True] * count
    file.write_text("broker.id=1\nzookeeper.connect=127.0.0.1:2181\n")
    file.chmod(0o644)
    warn_of_readable_secrets(str(file), load(file))
    assert warnings == []


@pytest.mark.parametrize(
    ("arguments", "warning_count"),
    [
        ([], 0),
        (["--interface", "::1"], 0),
        (["--override", "kreplica.coordinator.anonymous.clients=all", "--interface", "0.0.0.0"], 1),
    ],
)
def test_coordinator_listens_on_loopback(tmp_path, warnings, arguments, warning_count):
    """The default interface is loopback; another one without authentication must be allowed, and logs a warning."""
    options = CoordinatorOptions()
    options.parseOptions(["--data-dir", str(tmp_path / "data"), *arguments])
    process = zookeeper_from_options(MemoryReactorClock(), options, lambda _: None)
    process._runtime.offload.stop()
    assert process._server.interface == (arguments[-1] if arguments else "127.0.0.1")
    assert ["without authentication" in text for text in warnings] == [True] * warning_count
