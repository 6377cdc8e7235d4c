"""``RecordDeferred``, the result of a sent record, behaves like a Deferred."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from twisted.internet.defer import AlreadyCalledError, CancelledError, Deferred, gatherResults, inlineCallbacks
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kreplica.client.producer import Written
from kreplica.client.producer.completion_counter import CompletionCounter
from kreplica.client.producer.record_deferreds import RecordDeferred, complete_records, fail_record
from kreplica.client_core.errors import ClientError, RecordTooLarge, TransactionFailed
from kreplica.model import TopicPartition

WRITTEN = Written(TopicPartition("t", 0), 5, 7)


def complete(*deferreds: RecordDeferred | CompletionCounter) -> None:
    complete_records(deferreds, [WRITTEN] * len(deferreds))


@pytest.mark.parametrize("callbacks_first", [True, False])
def test_callbacks(callbacks_first: bool) -> None:
    """The callbacks are called once, whether added before or after the result."""
    deferred, seen = RecordDeferred(), []
    if not callbacks_first:
        complete(deferred)
    deferred.addCallback(seen.append)
    deferred.addCallback(lambda _: seen.append("more"))
    if callbacks_first:
        complete(deferred)
    assert seen == [WRITTEN, "more"]
    with pytest.raises(AlreadyCalledError):
        deferred.callback(WRITTEN)


@pytest.mark.parametrize("callbacks_first", [True, False])
def test_awaiting(callbacks_first: bool) -> None:
    """A RecordDeferred can be awaited, gathered, chained and returned from a callback."""
    deferreds = [RecordDeferred() for _ in range(5)]
    if not callbacks_first:
        complete(*deferreds)

    async def wait() -> Written:
        return await deferreds[0]

    @inlineCallbacks
    def old_style() -> Any:
        return (yield deferreds[1])

    first: Deferred[None] = Deferred()
    first.addCallback(lambda _: deferreds[2])
    first.callback(None)
    chained: Deferred[Written] = Deferred()
    deferreds[3].chainDeferred(chained)
    results = gatherResults([Deferred.fromCoroutine(wait()), old_style(), first, chained, deferreds[4]])
    if callbacks_first:
        complete(*deferreds)
    seen: list[Any] = []
    results.addCallback(seen.extend)
    assert seen[:3] == [WRITTEN] * 3


def test_cancelling() -> None:
    """A cancelled RecordDeferred ignores its result."""
    deferred, failed = RecordDeferred(), []
    deferred.addErrback(failed.append)
    deferred.cancel()
    assert failed[0].check(CancelledError)
    quiet = RecordDeferred()
    quiet.cancel()
    complete(deferred, quiet)
    quiet.addErrback(lambda failure: failed.append(failure))
    assert len(failed) == 2


def test_records_complete_independently() -> None:
    """A record's callback is not called when another record completes."""
    first, second, seen = RecordDeferred(), RecordDeferred(), []
    first.addCallback(seen.append)
    complete(second)
    assert seen == []
    complete(first)
    assert seen == [WRITTEN]


def test_counting() -> None:
    """A completion counter fires when all of its records have completed."""
    countdown = CompletionCounter()
    countdown.pending = 3
    done, seen = countdown.wait(), []
    done.addCallback(seen.append)
    complete(countdown, RecordDeferred(), countdown)
    assert seen == []
    complete(countdown)
    assert seen == [None]


class UnhandledTests(SynchronousTestCase):
    """Errors that no errback has handled."""

    def setUp(self) -> None:
        gc.collect()
        self.flushLoggedErrors()  # discards the errors of other tests

    def test_unhandled_error_is_logged(self) -> None:
        """The error is logged as for any Deferred."""
        RecordDeferred().errback(ValueError("unhandled"))
        gc.collect()
        (failure,) = self.flushLoggedErrors(ValueError)
        assert "unhandled" in str(failure.value)


@pytest.mark.parametrize(("error", "is_logged"), [(TransactionFailed("aborted"), False), (RecordTooLarge("x"), True)])
def test_unhandled_errors_of_an_aborted_transaction_are_not_logged(error: ClientError, is_logged: bool) -> None:
    """Deferreds that are kept fail in both cases; the error of a dropped one is logged unless it is an abort."""
    errors: list[object] = []
    logged: list[object] = []

    def note(event: object) -> None:
        logged.append(event)

    gc.collect()  # frees the objects of other tests
    before, after = RecordDeferred(), RecordDeferred()
    before.addErrback(lambda failure: errors.append(failure.value))
    for deferred in (before, after, RecordDeferred()):
        fail_record(deferred, error)
    after.addErrback(lambda failure: errors.append(failure.value))
    globalLogPublisher.addObserver(note)
    del deferred
    gc.collect()
    globalLogPublisher.removeObserver(note)
    assert errors == [error, error]
    assert bool(logged) == is_logged
