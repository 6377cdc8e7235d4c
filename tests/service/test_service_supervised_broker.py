"""A broker in a child process: first start, restarts with backoff, and stop."""

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

    def says(self, text: str, descriptor: int = 2) -> None:
        self.protocol.childDataReceived(descriptor, text.encode())

    def serves(self) -> None:
        self.says(f"{SERVING.to_line()}\n", 1)

    def ends(self, status: int | None = None, number: int | None = None) -> None:
        end = ProcessTerminated(status, number) if status or number else ProcessDone(0)
        self.protocol.processEnded(Failure(end))


class Processes(Clock):
    """A reactor that starts fake processes.

    :ivar refused: number of the next starts that fail.
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
        self.kept = SupervisedBroker(self.reactor, 2, ["python", "broker"], self.lines.append)

    @property
    def child(self) -> Child:
        """Return the latest child."""
        return self.reactor.children[-1]

    def begin(self) -> Deferred[BrokerAddresses]:
        return Deferred.fromCoroutine(self.kept.start())

    def serving(self) -> None:
        started = self.begin()
        self.child.serves()
        assert result(started) == SERVING

    def pause_until_next(self) -> int:
        """Return the seconds until it is restarted."""
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


def test_start_ends_with_the_ready_message(scene: Scene) -> None:
    """Other output is logged line by line."""
    started = scene.begin()
    scene.child.says("one\ntw")
    scene.child.says("{}\n", 1)
    scene.child.says("o\n")
    assert not started.called
    for character in SERVING.to_line() + "\n":
        scene.child.says(character, 1)
    assert result(started) == SERVING
    assert scene.lines == ["one", "{}", "two"]


def test_failed_start(scene: Scene) -> None:
    """The child's last output is the reason, and is not logged as well; nothing is restarted."""
    started = scene.begin()
    scene.child.says("kreplica: the port is in use")
    scene.child.ends(1)
    with pytest.raises(BrokerEnded, match="broker 2: the port is in use"):
        result(started)
    assert scene.lines == []
    assert scene.reactor.getDelayedCalls() == []


def test_start_refused_by_the_system(scene: Scene) -> None:
    scene.reactor.rejected = 1
    with pytest.raises(OSError, match="process limit reached"):
        result(scene.begin())
    assert result(Deferred.fromCoroutine(scene.kept.stop())) is None


@pytest.mark.parametrize(("status", "number"), [(None, None), (3, None), (None, signal.SIGKILL)])
def test_backoff_grows(scene: Scene, status: int | None, number: int | None) -> None:
    """The child is restarted after any end, with a backoff that grows up to a limit."""
    scene.serving()
    pauses = []
    for _ in range(7):
        scene.child.ends(status, number)
        pauses.append(scene.pause_until_next())
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_backoff_is_reset_after_a_stable_period(scene: Scene) -> None:
    scene.serving()
    for _ in range(3):
        scene.child.ends(1)
        scene.pause_until_next()
    scene.child.serves()
    scene.reactor.advance(STABLE_S)
    scene.child.ends(1)
    assert scene.pause_until_next() == 1


def test_refused_restart_is_retried(scene: Scene) -> None:
    scene.serving()
    scene.child.ends(1)
    scene.reactor.rejected = 2
    assert scene.pause_until_next() == 1 + 2 + 4


def test_stop(scene: Scene) -> None:
    """The child is continued, terminated and awaited; nothing is left."""
    scene.serving()
    scene.kept.resume()
    stopped = Deferred.fromCoroutine(scene.kept.stop())
    assert scene.child.signals == [signal.SIGCONT, signal.SIGTERM]
    assert not stopped.called
    scene.child.ends(None, signal.SIGTERM)
    assert result(stopped) is None
    assert scene.reactor.getDelayedCalls() == []
    assert len(scene.reactor.children) == 1


def test_stop_timeout(scene: Scene) -> None:
    scene.serving()
    stopped = Deferred.fromCoroutine(scene.kept.stop())
    scene.reactor.advance(STOP_S_MAX - 1)
    assert signal.SIGKILL not in scene.child.signals
    scene.reactor.advance(1)
    assert scene.child.signals[-1] == signal.SIGKILL
    scene.child.ends(None, signal.SIGKILL)
    assert result(stopped) is None


def test_stop_during_the_backoff(scene: Scene) -> None:
    """The stop ends at once, and the child is not restarted."""
    scene.serving()
    scene.child.ends(1)
    assert result(Deferred.fromCoroutine(scene.kept.stop())) is None
    assert scene.reactor.getDelayedCalls() == []


def test_stop_during_a_start(scene: Scene) -> None:
    started = scene.begin()
    started.cancel()
    with pytest.raises(CancelledError):
        result(started)
    stopped = Deferred.fromCoroutine(scene.kept.stop())
    scene.child.serves()
    assert not stopped.called
    scene.child.ends(None, signal.SIGTERM)
    assert result(stopped) is None


def test_only_the_parent_notifies_systemd(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("OTHER", "kept")
    scene.begin()
    (environment,) = scene.reactor.environments
    assert environment["OTHER"] == "kept"
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & environment.keys()


def test_output_of_children() -> None:
    """Each line has the name in front; in JSON logs every line stays JSON."""
    text, as_json = StringIO(), StringIO()
    relay("text", "broker-2", text)("12:00:00 info     it is so")
    assert text.getvalue() == "broker-2: 12:00:00 info     it is so\n"
    for line in ('{"level": "info", "message": "it is so"}', "Fatal Python error", "{}"):
        relay("json", "broker-2", as_json)(line)
    first, *others = map(json.loads, as_json.getvalue().splitlines())
    assert first == {"host": "broker-2", "level": "info", "message": "it is so"}
    assert others == [{"host": "broker-2", "message": line} for line in ("Fatal Python error", "{}")]
