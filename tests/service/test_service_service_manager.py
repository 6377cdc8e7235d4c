"""systemd is told when a broker serves, that it lives, and when it stops."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from kreplica.service.process.service_manager import ServiceManager, service_manager
from tests.support.standalone import StandaloneProcess


@pytest.fixture
def told() -> list[str]:
    return []


def test_a_long_start_is_given_time(told):
    """Every ten seconds another minute, until it serves; then no timer is left."""
    clock = Clock()
    manager = ServiceManager(clock, told.append)
    manager.starting()
    clock.pump([10] * 3)
    assert told == ["STATUS=starting\nEXTEND_TIMEOUT_USEC=60000000"] * 4
    manager.ready()
    assert told[-1] == "READY=1\nSTATUS=serving"
    assert not clock.getDelayedCalls()


def test_the_watchdog_is_told_in_time(told):
    """Three times in each of its periods, also while the broker stops."""
    clock = Clock()
    manager = ServiceManager(clock, told.append, watchdog_s=30.0)
    manager.ready()
    clock.pump([1] * 30)
    assert told.count("WATCHDOG=1") == 4
    manager.stopping()
    assert "STOPPING=1\nSTATUS=stopping" in told
    clock.pump([1] * 30)
    assert told.count("WATCHDOG=1") == 8
    manager.stopped()
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_systemd_nobody_is_told(environment):
    """Nothing is sent, and no timer started."""
    clock = Clock()
    manager = service_manager(clock, {**environment, "WATCHDOG_USEC": "1000000"}, 7)
    manager.starting()
    manager.ready()
    manager.stopping()
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize(
    ("more", "timers"),
    [({}, 0), ({"WATCHDOG_USEC": "3000000"}, 1), ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, 0)],
)
def test_a_watchdog_of_another_process_is_not_ours(tmp_path: Path, more, timers):
    """The environment is handed on to children, for whom it is not meant."""
    clock = Clock()
    manager = service_manager(clock, {"NOTIFY_SOCKET": str(tmp_path / "nobody"), **more}, 7)
    manager.ready()
    assert len(clock.getDelayedCalls()) == timers


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_process_tells_of_itself(tmp_path: Path, monkeypatch, kind):
    """As systemd hears it, from a start to the end."""
    name = str(tmp_path / "notify") if kind == "path" else f"@kreplica-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name.replace("@", "\0", 1))
        heard.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with StandaloneProcess(tmp_path) as process:
            messages = [heard.recv(4096).decode()]
            while not messages[-1].startswith("READY=1"):
                messages.append(heard.recv(4096).decode())
            process.stop()
        assert messages[0].startswith("STATUS=starting\nEXTEND_TIMEOUT_USEC=")
        assert heard.recv(4096).decode() == "STOPPING=1\nSTATUS=stopping"
