"""The cluster's timeline: history and live events of all brokers, through any broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from direct_calls import DirectCluster
from twisted.internet.defer import Deferred

from kreplica.admin.cluster_state import timeline_feed
from kreplica.admin.cluster_state.merged_timeline import key_of
from kreplica.admin.cluster_state.timeline_feed import TimelineFeed
from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.runtime.stalls import StallWatch
from kreplica.service.metrics.live_metrics import RecentDelays
from kreplica.testing.cluster.cluster import SimulatedCluster
from tests.support.broker_scene import batch


@pytest.fixture(scope="module")
def shared():
    """Return three brokers whose controller has moved from broker 1 to another one and back."""
    cluster = SimulatedCluster(seed=1, brokers=3)
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic("orders", 3, replication_factor=2))
    cluster.run(2)
    cluster.run_until(cluster.brokers[1].program.client.delete("/controller"))
    cluster.run(5)
    return cluster, DirectCluster(cluster)


def ids(document):
    return [entry["id"] for entry in document["entries"]]


def test_timeline_is_the_same_on_every_broker(shared):
    """Every broker returns the entries of all brokers, newest first."""
    _, apis = shared
    timelines = [apis[number].document("GET", "/v1/timeline") for number in (1, 2, 3)]
    assert ids(timelines[0]) == ids(timelines[1]) == ids(timelines[2])
    assert ids(timelines[0]) == sorted(ids(timelines[0]), key=key_of, reverse=True)
    kinds = [entry["kind"] for entry in timelines[0]["entries"]]
    assert kinds.count("controller_elected") == 2
    assert {"topics_created", "broker_joined", "controller_resigned"} <= set(kinds)
    assert timelines[0]["problems"] == []
    (made,) = [entry for entry in timelines[0]["entries"] if entry["kind"] == "topics_created"]
    assert (made["broker_id"], made["subject"], made["controller_epoch"]) == (1, "topic orders", 1)


def test_timeline_pages_and_kinds(shared):
    """The pages have each entry once; entries can be filtered by kind, or restricted to those after an entry."""
    _, apis = shared
    api = apis[3]
    everything = ids(api.document("GET", "/v1/timeline"))
    paged, before = [], None
    while page := ids(api.document("GET", "/v1/timeline", limit=2, before=before)):
        paged += page
        before = page[-1]
    assert paged == everything
    joined = api.document("GET", "/v1/timeline", kind="broker_joined")["entries"]
    assert [entry["subject"] for entry in joined] == ["broker 3", "broker 2"]
    assert ids(api.document("GET", "/v1/timeline", since=everything[3])) == everything[:3]


def test_dead_broker_is_named():
    """If a broker is dead, the timeline has the other brokers' entries and a notice that names the dead one."""
    cluster = SimulatedCluster(seed=2, brokers=3)
    cluster.start()
    apis = DirectCluster(cluster)
    cluster.brokers[3].kill()
    timeline = apis[2].document("GET", "/v1/timeline")
    assert timeline["problems"] == ["broker 3: cannot send a request to broker 3"]
    cluster.run(30)
    timeline = apis[2].document("GET", "/v1/timeline", kind="broker_left")
    assert [entry["text"] for entry in timeline["entries"]] == ["broker 3 left"]


def test_counters_of_all_brokers(shared):
    """Every broker returns the counters of all brokers; one that does not respond is listed without counters."""
    _, apis = shared
    figures = apis[2].document("GET", "/v1/live-metrics")
    assert [(row["broker_id"], row["live"]) for row in figures["brokers"]] == [(1, True), (2, True), (3, True)]
    assert sum(row["leaders"] for row in figures["brokers"]) == 3
    assert sum(row["is_controller"] for row in figures["brokers"]) == 1
    assert figures["at_ms"] > 1_600_000_000_000
    assert [row["reactor_delay_p99_ms"] for row in figures["brokers"]] == [1.0, 1.0, 1.0]
    asked_by_another = apis[3].document("GET", "/v1/live-metrics", forwarded=True)
    assert [row["broker_id"] for row in asked_by_another["brokers"]] == [3]
    apis.running = lambda broker_id, found=apis.running: None if broker_id == 3 else found(broker_id)
    rows = apis[1].document("GET", "/v1/live-metrics")["brokers"]
    assert (rows[2]["broker_id"], rows[2]["live"], rows[2]["leaders"]) == (3, False, None)
    del apis.running


def test_messages_are_counted_while_the_counters_are_read():
    """The number of messages between two reads is computed from log end offsets, without a cost for producers."""
    cluster = SimulatedCluster(seed=4, brokers=1)
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders", 2))
    api = DirectCluster(cluster)[1]

    def figures():
        cluster.run(1)
        (row,) = api.document("GET", "/v1/live-metrics")["brokers"]
        return row

    before = figures()
    leader = cluster.leader_client("orders", 1, name="producer")
    cluster.run_until(leader.produce("orders", 1, batch(b"a", b"b", b"c")))
    after = figures()
    assert after["messages_in"] - before["messages_in"] == 3
    assert after["produce"]["requests"] - before["produce"]["requests"] == 1
    assert after["bytes_in"] > before["bytes_in"]
    assert (after["leaders"], after["replicas"], after["offline"]) == (2, 2, 0)


def test_figures_do_not_wait_for_a_hanging_disk():
    """While a disk hangs, the last known free space is reported, and at most one read waits for the disk."""
    cluster = SimulatedCluster(seed=4, brokers=1)
    cluster.start()
    apis = DirectCluster(cluster)
    assert apis[1].document("GET", "/v1/live-metrics")
    cluster.run(1)
    cluster.brokers[1].host.offload.delay_s = (100.0, 100.0)
    for _ in range(5):
        before_s = cluster.simulation.now_s
        (row,) = apis[1].document("GET", "/v1/live-metrics")["brokers"]
        assert cluster.simulation.now_s - before_s < 1
        assert row["usable_bytes"] > 0
        cluster.run(1)


def test_only_recent_event_loop_delays_count():
    """A reactor that was blocked only at its start is reported as responsive."""
    now, stalls = [0.0], StallWatch(SimpleNamespace(seconds=lambda: 0.0))
    delays = RecentDelays(lambda: now[0], stalls)
    stalls.counts[-1] += 50
    assert delays.percentile_ms == 5000
    for _ in range(30):
        now[0] += 1
        stalls.counts[1] += 100
        found = delays.percentile_ms
    assert found == 2


# --- events -----------------------------------------------------------------------------------------------------------


class Streams:
    """Reads event streams of a feed in virtual time."""

    def __init__(self):
        self.cluster = SimulatedCluster(seed=3, brokers=1)
        self.reactor = self.cluster.host("listener").reactor
        self.entries = []
        self.reads = []
        self.feed = TimelineFeed(self.reactor, self.read)

    async def read(self, call, since):
        self.reads.append((call.authorization, dict(since)))
        return list(self.entries)

    def add(self, at_ms, broker=1, number=1):
        self.entries.append({"id": f"{at_ms}-{broker}-{number}", "broker_id": broker})

    def listen(self, **call):
        heard = []

        async def listening():
            async for event in self.feed.events(Call(**call)):
                heard.append(event.event_id)

        running = Deferred.fromCoroutine(listening())
        running.addErrback(lambda failure: heard.append(failure.type.__name__))
        self.cluster.run(0.1)
        return heard, running


@pytest.fixture
def streams():
    return Streams()


def test_listener_gets_new_entries_only(streams):
    """A listener gets each new entry once, soon after it was recorded."""
    streams.add(100)
    heard, _ = streams.listen()
    streams.cluster.run(3)
    assert heard == []
    streams.add(200)
    streams.add(150, broker=2)
    streams.cluster.run(timeline_feed.POLL_SECONDS + 0.1)
    assert heard == ["150-2-1", "200-1-1"]
    streams.cluster.run(3)
    assert len(heard) == 2
    assert streams.reads[-1][1] == {1: "200-1-1", 2: "150-2-1"}


def test_reconnecting_listener_misses_nothing(streams):
    """A listener that reconnects with the ID of its last entry first gets the entries since then."""
    for at_ms in (100, 200, 300):
        streams.add(at_ms)
    heard, _ = streams.listen(last_event_id="100-1-1")
    assert heard == ["200-1-1", "300-1-1"]
    streams.add(400)
    streams.cluster.run(1.2)
    assert heard[2:] == ["400-1-1"]


def test_listeners_share_one_poll(streams):
    """Brokers are polled once a second for any number of listeners, and not at all without listeners."""
    runs = [streams.listen(authorization=name)[1] for name in ("first", "second", "third")]
    before = len(streams.reads)
    streams.cluster.run(5)
    assert 4 <= len(streams.reads) - before <= 6
    assert streams.reads[-1][0] == "third"
    for running in runs:
        running.cancel()
    streams.cluster.run(0.1)
    before = len(streams.reads)
    streams.cluster.run(5)
    assert len(streams.reads) == before
    assert streams.reactor.getDelayedCalls() == []


def test_failed_poll_ends_no_stream(streams):
    """A stream pauses while ZooKeeper or all other brokers are unreachable, and then continues."""
    heard, _ = streams.listen()
    reading, streams.feed._read = streams.feed._read, None
    streams.cluster.run(3)
    streams.feed._read = reading
    streams.add(500)
    streams.cluster.run(1.2)
    assert heard == ["500-1-1"]


def test_slow_listener_is_disconnected(streams, monkeypatch):
    """A listener whose queue is full is disconnected; after a reconnect it continues from its last entry."""
    monkeypatch.setattr(timeline_feed, "QUEUE_MAX", 3)
    _, running = streams.listen()
    for at_ms in range(100, 110):
        streams.add(at_ms)
    streams.cluster.run(1.2)
    assert running.called


def test_invalid_event_id_is_refused(shared):
    """An invalid event ID gets an error response instead of a stream."""
    cluster, apis = shared
    handler, call = apis[1].handler("GET", "/v1/events")
    with pytest.raises(Problem) as refused:
        cluster.run_until(Deferred.fromCoroutine(handler(Call(path=call.path, last_event_id="nonsense"))))
    assert refused.value.status == 400
