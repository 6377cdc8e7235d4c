"""Periodic work over thousands of logs yields to the reactor, and tolerates logs that are deleted meanwhile."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed

from kreplica.model import TopicPartition
from kreplica.storage.directories.checkpoints import Checkpoints
from kreplica.storage.directories.log_cleaner import Cleaner
from kreplica.storage.log_config import LogConfig
from tests.support.iterated_clock import IteratedClock

KEYS = [TopicPartition("orders", number) for number in range(2_000)]


class SlowClock(IteratedClock):
    """A clock that advances with each call, so that long loops are sliced."""

    def seconds(self) -> float:
        self.rightNow += 0.001
        return self.rightNow


def run(clock: SlowClock, work: Coroutine[Deferred[Any], Any, Any]) -> tuple[Any, int]:
    """Return the result of a coroutine, and the number of reactor iterations that it took."""
    running: Deferred[Any] = Deferred.fromCoroutine(work)
    results: list[Any] = []
    running.addCallback(results.append)
    iterations = 1
    while not running.called:
        clock.iterate()
        iterations += 1
    return results[0], iterations


def test_high_watermarks_are_collected_in_slices() -> None:
    """The checkpoint contains all logs that exist at the end."""
    clock, written = SlowClock(), []
    logs: dict[TopicPartition, Any] = dict.fromkeys(KEYS)

    def write(_: Any, disk: Any, path: str, offsets: dict[TopicPartition, int]) -> Deferred[None]:
        written.append(dict(offsets))
        return succeed(None)

    runtime: Any = SimpleNamespace(reactor=clock, disk=None, offload=SimpleNamespace(run=write))
    checkpoints = Checkpoints("/data", runtime, logs, {}, lambda error: None)
    clock.callLater(0, logs.pop, KEYS[-1])
    _, iterations = run(clock, checkpoints.write_high_watermarks(dict.fromkeys(KEYS, 7)))
    assert written == [dict.fromkeys(KEYS[:-1], 7)]
    assert iterations > 200


def test_logs_to_compact_are_searched_in_slices() -> None:
    clock = SlowClock()
    runtime: Any = SimpleNamespace(reactor=clock, wall_clock_ms=lambda: 0)
    log = SimpleNamespace(config=SimpleNamespace(compacted=False))
    directory: Any = SimpleNamespace(logs=dict.fromkeys(KEYS, log), offline=None)
    cleaner = Cleaner(runtime, LogConfig())  # type: ignore[arg-type]
    done, iterations = run(clock, cleaner.run([directory], {}))
    assert done == 0
    assert iterations > 100
