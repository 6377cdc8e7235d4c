"""Produce requests that wait for replicas: what ends the wait, and with which answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from leading_scene import LEADER, SECOND, THIRD, Leading, batch, fetch, leadership
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from kreplica.errors import ErrorCode
from kreplica.replication import Partition
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.produce.batch_validation import BatchValidation
from kreplica.server.produce.handler import Produce
from kreplica.transactions.admission import Admission

TIMEOUT_S = 5.0


class Sent:
    """A produce request of one batch, and the row of its answer."""

    version = 9
    is_sliced = False
    connection = SimpleNamespace(listener="PLAINTEXT")

    size = 100

    def __init__(self, acks: int) -> None:
        data = {"index": 0, "records": memoryview(batch())}
        self.body: dict[str, Any] = {
            "acks": acks,
            "timeout_ms": int(TIMEOUT_S * 1000),
            "topic_data": [{"name": "t", "partition_data": [data]}],
        }
        self.row: dict[str, Any] | None = None
        self.abandoned: Callable[[], None] | None = None

    def answer(self, body: dict[str, Any]) -> None:
        assert self.row is None, "a request is answered once"
        self.row = body["responses"][0]["partition_responses"][0]

    def on_abandoned(self, abandoned: Callable[[], None]) -> None:
        self.abandoned = abandoned

    @property
    def error(self) -> ErrorCode | None:
        return ErrorCode(self.row["error_code"]) if self.row is not None else None


class Producing(Leading):
    """A leader of one partition with its produce handler."""

    def __init__(self, **partition: Any) -> None:
        super().__init__()
        self.led = self.partition(**partition)
        clock: Any = self.clock
        partitions: Any = SimpleNamespace(get=lambda _: self.led)
        nobody: Any = None
        metadata = MetadataCache(Clock())  # type: ignore[arg-type]
        validation = BatchValidation(nobody, lambda: 1000)
        self._handler = Produce(clock, partitions, metadata, lambda: 1000, Admission(nobody, lambda: True), validation)

    def send(self, acks: int = -1) -> Sent:
        sent = Sent(acks)
        request: Any = sent
        self._handler(request)
        self.end_turn()
        return sent

    def all_fetch(self) -> None:
        for replica in (SECOND, THIRD):
            fetch(self.led, replica, self.led.log.log_end_offset)
        self.end_turn()


def test_all_in_sync_replicas() -> None:
    """It is answered when the last of them has it, with its offset."""
    producing = Producing()
    sent = producing.send()
    fetch(producing.led, SECOND, 1)
    producing.end_turn()
    assert sent.row is None
    producing.all_fetch()
    assert sent.row is not None
    assert (sent.error, sent.row["base_offset"]) == (ErrorCode.NONE, 0)
    assert not producing.led.watchers
    assert not producing.clock.getDelayedCalls()


def test_the_leader_alone() -> None:
    """With acks=1 nobody is waited for."""
    assert Producing().send(acks=1).error is ErrorCode.NONE


def test_the_same_leader_in_a_new_epoch() -> None:
    """What it appended is still there: the wait goes on, and a client that is not idempotent writes nothing twice."""
    producing = Producing()
    sent = producing.send()
    producing.led.lead(leadership(6))
    producing.end_turn()
    assert sent.row is None
    producing.all_fetch()
    assert sent.error is ErrorCode.NONE


def test_another_leader() -> None:
    """The producer goes there, and is told where that is, though this broker leads again before it looks."""
    producing = Producing()
    sent = producing.send()
    producing.led.follow(leadership(6, leader=SECOND))
    producing.led.lead(leadership(7))
    producing.end_turn()
    assert sent.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sent.row is not None
    assert sent.row["base_offset"] == -1
    assert sent.row["current_leader"] == {"leader_id": LEADER, "leader_epoch": 7}


def test_a_directory_that_fails() -> None:
    """Nobody knows whether the record is still there."""
    producing = Producing()
    sent = producing.send()
    producing.led.go_offline()
    producing.end_turn()
    assert sent.error is ErrorCode.KAFKA_STORAGE_ERROR


def test_too_few_in_sync_from_the_start() -> None:
    """Nothing is appended."""
    producing = Producing(first=leadership(isr=(LEADER,)), min_insync_replicas=2)
    assert producing.send().error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producing.led.log.log_end_offset == 0


def test_too_few_in_sync_meanwhile() -> None:
    """It waits for others to come back, and says at the end that they did not."""
    producing = Producing(min_insync_replicas=2)
    sent = producing.send()
    producing.led.update_within_epoch(leadership(isr=(LEADER,), partition_epoch=1, eligible=(SECOND, THIRD)))
    producing.end_turn()
    assert sent.row is None
    producing.clock.advance(TIMEOUT_S)
    assert sent.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_replicas_that_take_too_long() -> None:
    """Enough are in sync, but they do not fetch."""
    producing = Producing()
    sent = producing.send()
    producing.clock.advance(TIMEOUT_S)
    assert sent.error is ErrorCode.REQUEST_TIMED_OUT


def test_a_client_that_goes_away() -> None:
    """Nothing is left of its request."""
    producing = Producing()
    sent = producing.send()
    assert sent.abandoned is not None
    sent.abandoned()
    assert not producing.led.watchers
    assert not producing.clock.getDelayedCalls()
    producing.all_fetch()
    assert sent.row is None


def test_without_a_lease() -> None:
    """Another may lead by now: the producer is sent on, and what waits is answered when the lease is back."""
    producing = Producing()
    waiting = producing.send()
    producing.has_lease = False
    assert producing.send().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    producing.all_fetch()
    assert waiting.row is None
    producing.has_lease = True
    producing.clock.advance(1)
    producing.end_turn()
    assert waiting.error is ErrorCode.NONE


def test_a_partition_that_is_being_removed() -> None:
    """An error after which every client tries again, until it is told that there is no such partition."""
    producing = Producing(first=leadership(read_only=True))
    assert producing.send(acks=1).error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_another_request_that_fails() -> None:
    """Whatever goes wrong with one of those that wait for a partition, the others are answered."""
    producing = Producing()

    class Failing:
        def changed(self, partitions: set[Partition]) -> None:
            raise RuntimeError("a mistake in a handler")

    failing = Failing()
    producing.led.watchers[failing] = None
    with capturedLogs() as logged:
        sent = producing.send()
        producing.all_fetch()
    assert sent.error is ErrorCode.NONE
    assert {event["log_failure"].type for event in logged} == {RuntimeError}
