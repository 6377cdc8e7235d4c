"""Keys are read on schedule and on demand, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from kreplica.errors import SettingsError
from kreplica.security.oauth.endpoint_urls import parse_endpoint_url
from kreplica.security.oauth.http_exchange import HttpFailed
from kreplica.security.oauth.key_set import KeySet
from kreplica.security.oauth.key_source import ON_DEMAND_INTERVAL_S, WAITERS_MAX, KeySchedule, KeySource
from tests.support.token_server import ec_key, jwk, key_set, rsa_key

FIRST, SECOND = key_set(jwk(rsa_key(1), "one")), key_set(jwk(rsa_key(1), "one"), jwk(ec_key(1), "two"))


class InlineOffload:
    """Runs functions at once."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return maybeDeferred(function, *arguments)

    def stop(self) -> None:
        pass


class Scene:
    """A key source whose reads the test completes."""

    def __init__(self, keys: KeySet | None = None) -> None:
        self.clock = Clock()
        self.reads: list[Deferred[bytes]] = []
        schedule = KeySchedule(refresh_s=3600, backoff_s=lambda failures: min(2.0**failures, 30.0))
        offload = InlineOffload()
        self.source = KeySource("keys", self._read, self.clock, offload, schedule, keys)  # type: ignore[arg-type]
        self.source.start()

    def _read(self) -> Deferred[bytes]:
        self.reads.append(Deferred())
        return self.reads[-1]

    def refresh_on_demand(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.source.refresh_for_unknown_key())

    @property
    def key_ids(self) -> list[str | None]:
        return [key.key_id for key in self.source.keys.keys]


def test_keys_are_read_on_schedule() -> None:
    """The keys are read at the start and every hour; a read on demand restarts the hour."""
    scene = Scene()
    assert scene.key_ids == []
    scene.reads[0].callback(FIRST)
    assert scene.key_ids == ["one"]
    scene.clock.advance(3599)
    assert len(scene.reads) == 1
    scene.clock.advance(1)
    scene.reads[1].callback(SECOND)
    assert scene.key_ids == ["one", "two"]
    scene.clock.advance(1800)
    waiting = scene.refresh_on_demand()
    scene.reads[2].callback(FIRST)
    assert (waiting.called, scene.key_ids) == (True, ["one"])
    scene.clock.advance(1800)
    assert len(scene.reads) == 3
    scene.clock.advance(1800)
    assert len(scene.reads) == 4
    scene.source.stop()
    assert scene.clock.getDelayedCalls() == []


def test_keys_from_a_file_are_available_at_once() -> None:
    scene = Scene(KeySet.parse(FIRST))
    assert (scene.key_ids, scene.reads) == (["one"], [])
    scene.clock.advance(3600)
    assert len(scene.reads) == 1
    scene.source.stop()


def test_keys_remain_while_reads_fail() -> None:
    """While reads fail, the last keys remain, and the delays grow."""
    scene = Scene()
    scene.reads[0].callback(FIRST)
    scene.clock.advance(3600)
    failures = [(2, b"{}"), (4, b"x"), (8, OSError(2, "gone")), (16, HttpFailed("x")), (30, KeyError("unexpected"))]
    for number, (delay_s, content) in enumerate(failures, 1):
        read = scene.reads[number]
        read.errback(content) if isinstance(content, Exception) else read.callback(content)
        assert (scene.source.failures, scene.key_ids) == (number, ["one"])
        scene.clock.advance(delay_s - 0.1)
        assert len(scene.reads) == number + 1
        scene.clock.advance(0.1)
        assert len(scene.reads) == number + 2
    scene.reads[6].callback(SECOND)
    assert (scene.source.failures, scene.key_ids) == (0, ["one", "two"])
    scene.source.stop()


def test_reads_on_demand_are_limited() -> None:
    """All waiters share one read, and the next one starts only after a while."""
    scene = Scene(KeySet.parse(FIRST))
    waiters = [scene.refresh_on_demand() for _ in range(WAITERS_MAX + 5)]
    assert len(scene.reads) == 1
    assert [each.called for each in waiters].count(True) == 5  # the others exceed the limit and do not wait
    scene.reads[0].callback(SECOND)
    assert all(each.called for each in waiters)
    assert scene.refresh_on_demand().called
    scene.clock.advance(ON_DEMAND_INTERVAL_S - 0.1)
    assert scene.refresh_on_demand().called
    assert len(scene.reads) == 1
    scene.clock.advance(0.1)
    assert not scene.refresh_on_demand().called
    assert len(scene.reads) == 2
    scene.reads[1].callback(FIRST)
    scene.source.stop()


def test_a_read_continues_without_waiters() -> None:
    """A client that disconnects while it waits cancels neither this read nor later ones."""
    scene = Scene(KeySet.parse(FIRST))
    waiting = scene.refresh_on_demand()
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    scene.reads[0].callback(SECOND)
    assert scene.key_ids == ["one", "two"]
    scene.clock.advance(3600)
    assert len(scene.reads) == 2
    scene.source.stop()


def test_stop_cancels_a_read() -> None:
    scene = Scene()
    waiting = scene.refresh_on_demand()
    outcomes: list[Any] = []
    waiting.addBoth(outcomes.append)
    scene.source.stop()
    assert (len(outcomes), scene.clock.getDelayedCalls()) == (1, [])
    assert scene.refresh_on_demand().called
    assert len(scene.reads) == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://issuer.example/keys", "use https://"),
        ("ftp://issuer.example/keys", "expected a URL with https:// or file://"),
        ("issuer.example", "expected a URL with https:// or file://"),
        ("https:///keys", "expected a URL with https:// or file://"),
        ("https://user:planted-secret-1@issuer.example/", "must not contain a user"),
        ("https://issuer.example:port/", "malformed"),
        ("file://host/keys", "an absolute path"),
        ("file:keys", "an absolute path"),
    ],
)
def test_invalid_urls(url: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_endpoint_url(url, "setting")
    assert message in str(caught.value)
    assert "planted" not in str(caught.value)


def test_valid_urls() -> None:
    assert parse_endpoint_url("file:///etc/my%20keys.json", "x").path == "/etc/my keys.json"
    for url in ("https://issuer.example/keys?x=1", "http://127.0.0.1:1/", "http://localhost/", "http://[::1]:1/"):
        found = parse_endpoint_url(url, "x")
        assert (found.url, found.path, found.is_secure) == (url, None, url.startswith("https"))
        assert "x=1" not in found.place
