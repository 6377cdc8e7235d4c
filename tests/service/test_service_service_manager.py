"""Notifications to systemd when a broker starts, runs and stops."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from kreplica.service.process.service_manager import ServiceManager, service_manager
from tests.support.standalone import StandaloneProcess


@pytest.fixture
def notifications() -> list[str]:
    return []


def test_long_start_extends_the_timeout(notifications):
    """The timeout is extended by a minute every ten seconds until the broker is ready; then no timer is left."""
    clock = Clock()
    manager = ServiceManager(clock, notifications.append)
    manager.starting()
    clock.pump([10] * 3)
    assert notifications == ["STATUS=starting\nEXTEND_TIMEOUT_USEC=60000000"] * 4
    manager.ready()
    assert notifications[-1] == "READY=1\nSTATUS=serving"
    assert not clock.getDelayedCalls()


def test_watchdog_is_notified_in_time(notifications):
    """The watchdog is notified three times per period, even while the broker stops."""
    clock = Clock()
    manager = ServiceManager(clock, notifications.append, watchdog_s=30.0)
    manager.ready()
    clock.pump([1] * 30)
    assert notifications.count("WATCHDOG=1") == 4
    manager.stopping()
    assert "STOPPING=1\nSTATUS=stopping" in notifications
    clock.pump([1] * 30)
    assert notifications.count("WATCHDOG=1") == 8
    manager.stopped()
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_no_notifications_without_systemd(environment):
    """Without a usable socket of systemd, no timer is started."""
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
def test_watchdog_of_another_process_is_ignored(tmp_path: Path, more, timers):
    """Child processes inherit the variables, but only the process named in them is watched."""
    clock = Clock()
    manager = service_manager(clock, {"NOTIFY_SOCKET": str(tmp_path / "nobody"), **more}, 7)
    manager.ready()
    assert len(clock.getDelayedCalls()) == timers


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_process_notifies_systemd(tmp_path: Path, monkeypatch, kind):
    """A process notifies systemd when it starts, is ready and stops."""
    name = str(tmp_path / "notify") if kind == "path" else f"@kreplica-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with StandaloneProcess(tmp_path) as process:
            messages = [receiver.recv(4096).decode()]
            while not messages[-1].startswith("READY=1"):
                messages.append(receiver.recv(4096).decode())
            process.stop()
        assert messages[0].startswith("STATUS=starting\nEXTEND_TIMEOUT_USEC=")
        assert receiver.recv(4096).decode() == "STOPPING=1\nSTATUS=stopping"
