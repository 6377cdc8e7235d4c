"""Requests that wait until the broker has received the cluster metadata."""

import pytest
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.responses import HELD_SECONDS_MAX, respond_with_result, wait_for_brokers
from kreplica.wire.messages import LEADER_AND_ISR
from kreplica.zookeeper import ConnectionLoss, SessionExpired

LIVE = {
    "controller_id": 1,
    "live_brokers": [{"id": 1, "endpoints": [{"listener": "PLAINTEXT", "host": "h", "port": 1}], "rack": None}],
    "topic_states": [],
}


class FakeRequest:
    is_waiting = True
    api = LEADER_AND_ISR

    def __init__(self):
        self.abandoned = []
        self.aborted = []

    def abort(self, reason):
        self.aborted.append(reason)

    def respond(self, body):
        raise AssertionError("the request must not get a response")

    def on_abandoned(self, callback):
        self.abandoned.append(callback)


def make():
    clock = Clock()
    metadata = MetadataCache(clock)
    handled = []
    return clock, metadata, handled, wait_for_brokers(metadata, handled.append)


def test_requests_wait_for_the_first_metadata():
    clock, metadata, handled, handler = make()
    early, late = FakeRequest(), FakeRequest()
    handler(early)
    clock.advance(1)
    assert handled == []
    metadata.update(LIVE)
    assert handled == [early]
    handler(late)
    assert handled == [early, late]
    assert clock.getDelayedCalls() == []


def test_requests_are_answered_after_a_timeout_without_metadata():
    clock, _, handled, handler = make()
    request = FakeRequest()
    handler(request)
    clock.advance(HELD_SECONDS_MAX)
    assert handled == [request]


def test_request_of_a_closed_connection_is_not_handled():
    clock, metadata, handled, handler = make()
    request = FakeRequest()
    handler(request)
    request.is_waiting = False
    for callback in request.abandoned:
        callback()
    metadata.update(LIVE)
    assert handled == []
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("error", "logged"), [(ConnectionLoss(), []), (SessionExpired(), []), (ZeroDivisionError(), [ZeroDivisionError])]
)
def test_only_unexpected_errors_are_logged(error, logged):
    """Every error closes the connection; only an unexpected error is logged with a traceback."""

    async def failing():
        raise error

    request, events = FakeRequest(), []
    globalLogPublisher.addObserver(events.append)
    try:
        respond_with_result(request, failing())
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert len(request.aborted) == 1
    assert [event["log_failure"].type for event in events if "log_failure" in event] == logged
