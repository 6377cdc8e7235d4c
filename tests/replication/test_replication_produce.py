"""Delayed produce requests: completion and response."""

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
from kreplica.server.produce.handler import Produce
from kreplica.server.produce.record_checks import BatchValidation
from kreplica.transactions.admission import Admission

TIMEOUT_S = 5.0


class Sent:
    """A Produce request with one batch, and its response row."""

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

    def respond(self, body: dict[str, Any]) -> None:
        assert self.row is None, "a request gets only one response"
        self.row = body["responses"][0]["partition_responses"][0]

    def on_abandoned(self, abandoned: Callable[[], None]) -> None:
        self.abandoned = abandoned

    @property
    def error(self) -> ErrorCode | None:
        return ErrorCode(self.row["error_code"]) if self.row is not None else None


class Producing(Leading):
    """Leader of one partition with a produce handler."""

    def __init__(self, **partition: Any) -> None:
        super().__init__()
        self.led = self.partition(**partition)
        clock: Any = self.clock
        partitions: Any = SimpleNamespace(get=lambda _: self.led)
        unused: Any = None
        metadata = MetadataCache(Clock())  # type: ignore[arg-type]
        validation = BatchValidation(unused, lambda: 1000)
        self._handler = Produce(clock, partitions, metadata, lambda: 1000, Admission(unused, lambda: True), validation)

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
    """The request completes with its offset once the last in-sync replica has the record."""
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


def test_acks_1() -> None:
    """The request completes at once."""
    assert Producing().send(acks=1).error is ErrorCode.NONE


def test_same_leader_in_a_new_epoch() -> None:
    """A new epoch of the same leader keeps the record, so the request keeps waiting."""
    producing = Producing()
    sent = producing.send()
    producing.led.lead(leadership(6))
    producing.end_turn()
    assert sent.row is None
    producing.all_fetch()
    assert sent.error is ErrorCode.NONE


def test_other_leader() -> None:
    """The response names the new leader, even if this broker leads again before the check."""
    producing = Producing()
    sent = producing.send()
    producing.led.follow(leadership(6, leader=SECOND))
    producing.led.lead(leadership(7))
    producing.end_turn()
    assert sent.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sent.row is not None
    assert sent.row["base_offset"] == -1
    assert sent.row["current_leader"] == {"leader_id": LEADER, "leader_epoch": 7}


def test_directory_fails() -> None:
    """If the log directory goes offline, the outcome is unknown."""
    producing = Producing()
    sent = producing.send()
    producing.led.go_offline()
    producing.end_turn()
    assert sent.error is ErrorCode.KAFKA_STORAGE_ERROR


def test_too_few_in_sync_from_the_start() -> None:
    """The request fails and nothing is appended."""
    producing = Producing(first=leadership(isr=(LEADER,)), min_insync_replicas=2)
    assert producing.send().error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producing.led.log.log_end_offset == 0


def test_too_few_in_sync_meanwhile() -> None:
    """The request waits for replicas to return, and fails at its timeout if they do not."""
    producing = Producing(min_insync_replicas=2)
    sent = producing.send()
    producing.led.update_within_epoch(leadership(isr=(LEADER,), partition_epoch=1, eligible=(SECOND, THIRD)))
    producing.end_turn()
    assert sent.row is None
    producing.clock.advance(TIMEOUT_S)
    assert sent.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_replicas_that_do_not_fetch() -> None:
    """The request times out although the followers are in sync."""
    producing = Producing()
    sent = producing.send()
    producing.clock.advance(TIMEOUT_S)
    assert sent.error is ErrorCode.REQUEST_TIMED_OUT


def test_closed_connection() -> None:
    """A closed connection removes its delayed request."""
    producing = Producing()
    sent = producing.send()
    assert sent.abandoned is not None
    sent.abandoned()
    assert not producing.led.watchers
    assert not producing.clock.getDelayedCalls()
    producing.all_fetch()
    assert sent.row is None


def test_no_lease() -> None:
    """Without the lease, new requests are rejected; pending ones complete when it is back."""
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


def test_partition_being_removed() -> None:
    """Clients retry this error until the partition is unknown."""
    producing = Producing(first=leadership(read_only=True))
    assert producing.send(acks=1).error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_failure_of_another_request() -> None:
    """An exception in one delayed request does not affect the others."""
    producing = Producing()

    class Failing:
        def changed(self, partitions: set[Partition]) -> None:
            raise RuntimeError("a mistake in a handler")

    failing = Failing()
    producing.led.add_watcher(failing)
    with capturedLogs() as logged:
        sent = producing.send()
        producing.all_fetch()
    assert sent.error is ErrorCode.NONE
    assert {event["log_failure"].type for event in logged} == {RuntimeError}
