"""Requests that wait until the broker knows its cluster."""

from twisted.internet.task import Clock

from kreplica.server.answers import HELD_SECONDS_MAX, once_known
from kreplica.server.metadata import MetadataCache

LIVE = {
    "controller_id": 1,
    "live_brokers": [{"id": 1, "endpoints": [{"listener": "PLAINTEXT", "host": "h", "port": 1}], "rack": None}],
    "topic_states": [],
}


class FakeRequest:
    is_waiting = True

    def __init__(self):
        self.abandoned = []

    def on_abandoned(self, callback):
        self.abandoned.append(callback)


def make():
    clock = Clock()
    metadata = MetadataCache(clock)
    handled = []
    return clock, metadata, handled, once_known(metadata, handled.append)


def test_held_until_a_controller_has_spoken():
    """A client that comes early is answered when there is something to say, and the next at once."""
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


def test_not_for_ever():
    """Without any controller it is answered with the little that is known."""
    clock, _, handled, handler = make()
    request = FakeRequest()
    handler(request)
    clock.advance(HELD_SECONDS_MAX)
    assert handled == [request]


def test_a_client_that_went_away_is_forgotten():
    """Nothing is handled for it, and nothing stays behind."""
    clock, metadata, handled, handler = make()
    request = FakeRequest()
    handler(request)
    request.is_waiting = False
    for callback in request.abandoned:
        callback()
    metadata.update(LIVE)
    assert handled == []
    assert clock.getDelayedCalls() == []
