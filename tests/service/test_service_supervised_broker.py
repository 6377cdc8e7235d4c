"""A broker in a child process: start, restarts with backoff, and stop."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from kreplica.service.process.broker_process import BrokerAddresses
from kreplica.service.process.log_output import relay
from kreplica.service.standalone.supervised_broker import (
    PAUSE_S_MAX,
    STABLE_S,
    STOP_S_MAX,
    BrokerEnded,
    SupervisedBroker,
)

SERVING = BrokerAddresses(9092, None)


class Child:
    """Fake of an operating system process."""

    def __init__(self, protocol: ProcessProtocol, pid: int) -> None:
        self.protocol = protocol
        self.pid = pid
        self.signals: list[int] = []
        protocol.makeConnection(self)

    def signalProcess(self, number: int) -> None:
        self.signals.append(number)

    def write_output(self, text: str, descriptor: int = 2) -> None:
        self.protocol.childDataReceived(descriptor, text.encode())

    def report_ready(self) -> None:
        self.write_output(f"{SERVING.to_line()}\n", 1)

    def exit(self, status: int | None = None, number: int | None = None) -> None:
        end = ProcessTerminated(status, number) if status or number else ProcessDone(0)
        self.protocol.processEnded(Failure(end))


class Processes(Clock):
    """A reactor that starts fake processes.

    :ivar rejected: number of upcoming starts that fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Child] = []
        self.environments: list[dict[str, str]] = []
        self.rejected = 0

    def spawnProcess(
        self, protocol: ProcessProtocol, executable: str, args: Sequence[str], env: dict[str, str]
    ) -> None:
        if self.rejected:
            self.rejected -= 1
            raise OSError("process limit reached")
        assert executable == args[0]
        self.environments.append(env)
        self.children.append(Child(protocol, 100 + len(self.children)))


class Scene:
    def __init__(self) -> None:
        self.reactor = Processes()
        self.lines: list[str] = []
        self.broker = SupervisedBroker(self.reactor, 2, ["python", "broker"], self.lines.append)

    @property
    def child(self) -> Child:
        """The latest child process."""
        return self.reactor.children[-1]

    def start(self) -> Deferred[BrokerAddresses]:
        return Deferred.fromCoroutine(self.broker.start())

    def start_serving(self) -> None:
        started = self.start()
        self.child.report_ready()
        assert result(started) == SERVING

    def wait_for_restart(self) -> int:
        """Wait until the child is restarted, and return the seconds that it took."""
        count, seconds = len(self.reactor.children), 0
        while len(self.reactor.children) == count:
            self.reactor.advance(1)
            seconds += 1
            assert seconds <= 2 * PAUSE_S_MAX
        return seconds


def result(deferred: Deferred[Any]) -> Any:
    """Return the result of a Deferred, or raise its error."""
    assert deferred.called
    found: list[Any] = []
    deferred.addBoth(found.append)
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_start_completes_with_the_ready_message(scene: Scene) -> None:
    """Output before the ready message is logged line by line."""
    started = scene.start()
    scene.child.write_output("one\ntw")
    scene.child.write_output("{}\n", 1)
    scene.child.write_output("o\n")
    assert not started.called
    for character in SERVING.to_line() + "\n":
        scene.child.write_output(character, 1)
    assert result(started) == SERVING
    assert scene.lines == ["one", "{}", "two"]


def test_failed_start(scene: Scene) -> None:
    """The child's last output is used as the error instead of being logged; the child is not restarted."""
    started = scene.start()
    scene.child.write_output("kreplica: the port is in use")
    scene.child.exit(1)
    with pytest.raises(BrokerEnded, match="broker 2: the port is in use"):
        result(started)
    assert scene.lines == []
    assert scene.reactor.getDelayedCalls() == []


def test_start_refused_by_the_system(scene: Scene) -> None:
    scene.reactor.rejected = 1
    with pytest.raises(OSError, match="process limit reached"):
        result(scene.start())
    assert result(Deferred.fromCoroutine(scene.broker.stop())) is None


@pytest.mark.parametrize(("status", "number"), [(None, None), (3, None), (None, signal.SIGKILL)])
def test_backoff_grows(scene: Scene, status: int | None, number: int | None) -> None:
    """The child is restarted however it ended, with a backoff that grows up to a limit."""
    scene.start_serving()
    pauses = []
    for _ in range(7):
        scene.child.exit(status, number)
        pauses.append(scene.wait_for_restart())
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_backoff_is_reset_after_a_stable_period(scene: Scene) -> None:
    scene.start_serving()
    for _ in range(3):
        scene.child.exit(1)
        scene.wait_for_restart()
    scene.child.report_ready()
    scene.reactor.advance(STABLE_S)
    scene.child.exit(1)
    assert scene.wait_for_restart() == 1


def test_refused_restart_is_retried(scene: Scene) -> None:
    scene.start_serving()
    scene.child.exit(1)
    scene.reactor.rejected = 2
    assert scene.wait_for_restart() == 1 + 2 + 4


def test_stop(scene: Scene) -> None:
    """The child is resumed, terminated and awaited; no timer is left."""
    scene.start_serving()
    scene.broker.resume()
    stopped = Deferred.fromCoroutine(scene.broker.stop())
    assert scene.child.signals == [signal.SIGCONT, signal.SIGTERM]
    assert not stopped.called
    scene.child.exit(None, signal.SIGTERM)
    assert result(stopped) is None
    assert scene.reactor.getDelayedCalls() == []
    assert len(scene.reactor.children) == 1


def test_stop_timeout(scene: Scene) -> None:
    scene.start_serving()
    stopped = Deferred.fromCoroutine(scene.broker.stop())
    scene.reactor.advance(STOP_S_MAX - 1)
    assert signal.SIGKILL not in scene.child.signals
    scene.reactor.advance(1)
    assert scene.child.signals[-1] == signal.SIGKILL
    scene.child.exit(None, signal.SIGKILL)
    assert result(stopped) is None


def test_stop_during_the_backoff(scene: Scene) -> None:
    """The stop completes at once, and the child is not restarted."""
    scene.start_serving()
    scene.child.exit(1)
    assert result(Deferred.fromCoroutine(scene.broker.stop())) is None
    assert scene.reactor.getDelayedCalls() == []


def test_stop_during_a_start(scene: Scene) -> None:
    started = scene.start()
    started.cancel()
    with pytest.raises(CancelledError):
        result(started)
    stopped = Deferred.fromCoroutine(scene.broker.stop())
    scene.child.report_ready()
    assert not stopped.called
    scene.child.exit(None, signal.SIGTERM)
    assert result(stopped) is None


def test_only_the_parent_notifies_systemd(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("OTHER", "kept")
    scene.start()
    (environment,) = scene.reactor.environments
    assert environment["OTHER"] == "kept"
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & environment.keys()


def test_output_of_children() -> None:
    """Each line is prefixed with the broker's name; in JSON logs, each line remains a JSON object."""
    text, as_json = StringIO(), StringIO()
    relay("text", "broker-2", text)("12:00:00 info     started")
    assert text.getvalue() == "broker-2: 12:00:00 info     started\n"
    for line in ('{"level": "info", "message": "started"}', "Fatal Python error", "{}"):
        relay("json", "broker-2", as_json)(line)
    first, *others = map(json.loads, as_json.getvalue().splitlines())
    assert first == {"host": "broker-2", "level": "info", "message": "started"}
    assert others == [{"host": "broker-2", "message": line} for line in ("Fatal Python error", "{}")]
