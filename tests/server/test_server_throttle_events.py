"""Timeline events that are recorded when quotas start and stop slowing down clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from quota_scene import QuotaScene
from twisted.internet.task import Clock

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE, CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from kreplica.controller.history.audit_events import CLIENT_ENTRIES_MAX, CLIENT_KINDS, ENTRIES_MAX, AuditEvents
from kreplica.server.quotas import throttle_events
from kreplica.server.quotas.throttle_events import ENDED, QUIET_S, STARTED, STARTS_MAX, WINDOW_S, ThrottleEvents
from kreplica.server.quotas.throttled_clients import ThrottledKey


class Scene:
    """Throttle events in virtual time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.recorded: list[tuple[str, str, str, Mapping[str, Any]]] = []
        self.events = ThrottleEvents(self.clock, lambda *event: self.recorded.append(event))

    def throttle(
        self, client_id: str = "app", seconds: float = 1.0, quota: str = PRODUCER_BYTE_RATE, user: str = "User:alice"
    ) -> None:
        self.events.add(ThrottledKey(quota, user, client_id, "192.0.2.1"), seconds)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, *_ in self.recorded]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_one_event_at_the_start_and_one_at_the_end(scene: Scene) -> None:
    """Further throttled requests, even after pauses of less than a minute, add no events; the end has the totals."""
    for _ in range(40):
        scene.throttle(seconds=2.5)
        scene.pass_time(5)
    scene.throttle(quota=CONSUMER_BYTE_RATE)
    scene.pass_time(QUIET_S - 10)
    assert scene.kinds == [STARTED, STARTED]
    kind, subject, text, details = scene.recorded[0]
    assert (kind, subject) == (STARTED, "client User:alice")
    assert text == "client User:alice with the client ID app: requests are throttled by the quota producer_byte_rate"
    assert details == {"quota": PRODUCER_BYTE_RATE, "user": "User:alice", "client_id": "app"}
    scene.pass_time(30)
    assert scene.kinds == [STARTED, STARTED, ENDED, ENDED]
    *_, text, details = scene.recorded[2]
    assert text == (
        "client User:alice with the client ID app: requests are no longer throttled by the quota producer_byte_rate, "
        "which delayed 40 of them within 198 s, for 100.0 s in total"
    )
    assert (details["count"], details["throttled_ms"], details["lasted_s"]) == (40, 100_000, 198)
    assert scene.clock.getDelayedCalls() == []
    scene.throttle()
    assert scene.kinds[4:] == [STARTED]


def test_end_is_recorded_a_minute_after_the_throttle_time(scene: Scene) -> None:
    """The end is recorded a minute after the throttle time, not a minute after the request."""
    scene.throttle(seconds=600)
    scene.pass_time(600 + QUIET_S - 1)
    assert scene.kinds == [STARTED]
    scene.pass_time(6)
    assert scene.kinds == [STARTED, ENDED]


def test_throttled_connections(scene: Scene) -> None:
    """The event names the address, since the client's user is not known."""
    scene.throttle("", quota=CONNECTION_CREATION_RATE, user="")
    (event,) = scene.recorded
    assert event[1:3] == (
        "address 192.0.2.1",
        "address 192.0.2.1: new connections are throttled by the quota connection_creation_rate",
    )
    assert event[3] == {"quota": CONNECTION_CREATION_RATE, "address": "192.0.2.1"}


def test_many_clients(scene: Scene) -> None:
    """A limited number of starts is recorded per minute; the next record contains the number of other clients."""
    for number in range(STARTS_MAX + 7):
        scene.throttle(f"client-{number}")
        scene.throttle(f"client-{number}")
    assert scene.kinds == [STARTED] * STARTS_MAX
    scene.pass_time(WINDOW_S)
    scene.throttle(f"client-{STARTS_MAX}")
    *_, text, details = scene.recorded[-1]
    assert text.endswith("; since the previous record, quotas throttled 6 more clients")
    assert details["unrecorded_clients"] == 6
    scene.throttle("another")
    assert "unrecorded_clients" not in scene.recorded[-1][3]
    scene.pass_time(2 * QUIET_S)
    assert scene.kinds.count(ENDED) == scene.kinds.count(STARTED) == STARTS_MAX + 2


def test_memory_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many clients nor long names grow the memory."""
    monkeypatch.setattr(throttle_events, "CLIENTS_MAX", 15)
    for number in range(100):
        scene.throttle(f"{number}-{'x' * 30_000}", seconds=3600)
        if number % STARTS_MAX == 0:
            scene.pass_time(WINDOW_S)
    assert len(scene.events._periods) == len(scene.events._unrecorded) == 15
    assert max(len(text) for *_, text, _ in scene.recorded) < 400
    scene.events.stop()
    scene.throttle()
    assert scene.clock.getDelayedCalls() == []


def test_events_of_clients_do_not_displace_others() -> None:
    """Events of clients are stored separately, and all events are listed in the order of their times."""
    timeline = AuditEvents(1, lambda: 0)
    timeline.record("broker_left", "broker 2", "broker 2 left", {}, 1)
    for _ in range(ENTRIES_MAX):
        timeline.record(STARTED, "client User:a", "x", {})
    timeline.record("broker_joined", "broker 2", "broker 2 joined", {}, 1)
    newest = list(timeline.newest())
    assert len(newest) == CLIENT_ENTRIES_MAX + 2
    assert [newest[0].kind, newest[1].kind, newest[-1].kind] == ["broker_joined", STARTED, "broker_left"]
    assert [entry.number for entry in timeline] == sorted(entry.number for entry in timeline)
    assert {STARTED, ENDED} == CLIENT_KINDS


def test_throttled_requests_of_a_broker() -> None:
    """The timeline of a broker has both events."""
    scene = QuotaScene()
    scene.set_quota(PRODUCER_BYTE_RATE, 1000)
    for _ in range(3):
        scene.produce(8000)
    scene.cluster.run(QUIET_S + 40)
    entries = [entry for entry in scene.program.controller.history.audit_events if entry.kind in CLIENT_KINDS]
    assert [(entry.kind, entry.subject) for entry in entries] == [
        (STARTED, "client User:ANONYMOUS"),
        (ENDED, "client User:ANONYMOUS"),
    ]
    assert entries[1].details["count"] == 2
    assert entries[0].controller_epoch is None
