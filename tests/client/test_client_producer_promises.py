"""The Deferreds of records behave like Deferreds."""

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


def keep(*promises: RecordDeferred | CompletionCounter) -> None:
    complete_records(promises, [WRITTEN] * len(promises))


@pytest.mark.parametrize("early", [True, False])
def test_callbacks(early: bool) -> None:
    """The callbacks are called once, whether added before or after the result."""
    promise, seen = RecordDeferred(), []
    if not early:
        keep(promise)
    promise.addCallback(seen.append)
    promise.addCallback(lambda _: seen.append("more"))
    if early:
        keep(promise)
    assert seen == [WRITTEN, "more"]
    with pytest.raises(AlreadyCalledError):
        promise.callback(WRITTEN)


@pytest.mark.parametrize("early", [True, False])
def test_awaiting(early: bool) -> None:
    """Awaiting, gathering, chaining and returning it from a callback yield the result."""
    promises = [RecordDeferred() for _ in range(5)]
    if not early:
        keep(*promises)

    async def wait() -> Written:
        return await promises[0]

    @inlineCallbacks
    def old_style() -> Any:
        return (yield promises[1])

    first: Deferred[None] = Deferred()
    first.addCallback(lambda _: promises[2])
    first.callback(None)
    chained: Deferred[Written] = Deferred()
    promises[3].chainDeferred(chained)
    found = gatherResults([Deferred.fromCoroutine(wait()), old_style(), first, chained, promises[4]])
    if early:
        keep(*promises)
    seen: list[Any] = []
    found.addCallback(seen.extend)
    assert seen[:3] == [WRITTEN] * 3


def test_cancelling() -> None:
    """A cancelled Deferred ignores the outcome."""
    promise, failed = RecordDeferred(), []
    promise.addErrback(failed.append)
    promise.cancel()
    assert failed[0].check(CancelledError)
    quiet = RecordDeferred()
    quiet.cancel()
    keep(promise, quiet)
    quiet.addErrback(lambda failure: failed.append(failure))
    assert len(failed) == 2


def test_deferreds_are_independent() -> None:
    """Callbacks of one Deferred are not called for another."""
    first, second, seen = RecordDeferred(), RecordDeferred(), []
    first.addCallback(seen.append)
    keep(second)
    assert seen == []
    keep(first)
    assert seen == [WRITTEN]


def test_counting() -> None:
    """A counter is notified once per record."""
    countdown = CompletionCounter()
    countdown.pending = 3
    done, seen = countdown.wait(), []
    done.addCallback(seen.append)
    keep(countdown, RecordDeferred(), countdown)
    assert seen == []
    keep(countdown)
    assert seen == [None]


class UnhandledTests(SynchronousTestCase):
    """Errors without errback."""

    def setUp(self) -> None:
        gc.collect()
        self.flushLoggedErrors()  # collects objects of other tests

    def test_unhandled_error_is_logged(self) -> None:
        """The log entry equals that of any Deferred."""
        RecordDeferred().errback(ValueError("nobody looks"))
        gc.collect()
        (failure,) = self.flushLoggedErrors(ValueError)
        assert "nobody looks" in str(failure.value)


@pytest.mark.parametrize(("error", "is_logged"), [(TransactionFailed("aborted"), False), (RecordTooLarge("x"), True)])
def test_dropped_deferreds_of_an_aborted_transaction_are_silent(error: ClientError, is_logged: bool) -> None:
    """The error is reported by ``abort``; Deferreds that are kept fail."""
    found: list[object] = []
    logged: list[object] = []

    def note(event: object) -> None:
        logged.append(event)

    gc.collect()  # ignores objects of other tests
    before, after = RecordDeferred(), RecordDeferred()
    before.addErrback(lambda failure: found.append(failure.value))
    for promise in (before, after, RecordDeferred()):
        fail_record(promise, error)
    after.addErrback(lambda failure: found.append(failure.value))
    globalLogPublisher.addObserver(note)
    del promise
    gc.collect()
    globalLogPublisher.removeObserver(note)
    assert found == [error, error]
    assert bool(logged) == is_logged
