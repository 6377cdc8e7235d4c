"""Histories of topics and groups: which ones are kept, their memory use, and requests through any broker."""

from __future__ import annotations

import pytest
from test_admin_load import Scene, commit
from twisted.internet.defer import Deferred

from kreplica.admin.http.problems import Problem
from kreplica.admin.load.history import COARSE_MS, COARSE_POINTS, span_of
from kreplica.admin.load.subject_histories import GROUP_SERIES, SUBJECTS_MAX, TOPIC_SERIES, SubjectHistories
from kreplica.errors import KafkaError

NOW_MS = 1_800_000_000_000
ONE = {"rate": ("records/s", "A rate.")}


class Samples:
    """Histories of at most three subjects, with one sample per minute."""

    def __init__(self):
        self.histories = SubjectHistories(ONE, subjects_max=3)
        self.now_ms = NOW_MS

    def take(self, minutes=1, **activities):
        for _ in range(minutes):
            self.now_ms += COARSE_MS
            for subject, activity in activities.items():
                self.histories.add(subject, self.now_ms, activity, [activity])
            self.histories.end_sample(self.now_ms)

    def kept_subjects(self, *subjects):
        span = span_of(self.now_ms - COARSE_MS * COARSE_POINTS, self.now_ms, self.now_ms)
        return [name for name in subjects if self.histories.read(name, ["rate"], span) is not None]


@pytest.mark.parametrize(("series", "size_max"), [(TOPIC_SERIES, 20_000), (GROUP_SERIES, 16_000)])
def test_memory_is_bounded(series, size_max):
    """However many topics there are, histories are kept for 200, and each has a fixed size."""
    histories = SubjectHistories(series)
    for number in range(3 * SUBJECTS_MAX):
        histories.add(f"topic-{number}", NOW_MS, 0.0, [1.0] * len(series))
    histories.end_sample(NOW_MS)
    assert len(histories) == SUBJECTS_MAX
    assert size_max * 0.9 < histories.size_bytes / SUBJECTS_MAX < size_max


def test_idle_subjects_are_kept_below_the_limit():
    samples = Samples()
    samples.take(idle=0, busy=5)
    assert samples.kept_subjects("idle", "busy", "unknown") == ["idle", "busy"]


def test_more_active_subject_replaces_the_least_active_one():
    """A subject must be much more active to replace another, and one that was busy hours ago is not replaced."""
    samples = Samples()
    samples.take(30, was_busy=1000, steady=10, quiet=1)
    samples.take(180, steady=10, quiet=1, equal=1.2, new=20)
    assert samples.kept_subjects("was_busy", "steady", "quiet", "equal", "new") == ["was_busy", "steady", "new"]


def test_idle_subject_does_not_replace_another():
    samples = Samples()
    samples.take(a=1, b=1, c=1)
    samples.take(10, a=0, b=0, c=0, d=0)
    assert samples.kept_subjects("a", "b", "c", "d") == ["a", "b", "c"]


def test_subject_without_samples_is_dropped_after_six_hours():
    samples = Samples()
    samples.take(gone=5)
    samples.take(COARSE_POINTS, other=1)
    assert samples.kept_subjects("gone") == ["gone"]
    samples.take(1, other=1)
    assert samples.kept_subjects("gone") == []


def test_activity_of_many_short_lived_subjects_is_forgotten():
    samples = Samples()
    for number in range(100):
        samples.take(**{f"topic-{number}": 5})
    assert len(samples.histories._activity) <= 4


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scene():
    scene = Scene()
    scene.topics()
    scene.sample()
    commit(scene, "kitchen", {0: 0})
    for count in (30, 0, 0):
        scene.produce(0, count) if count else None
        scene.cluster.run(10)
        for machine in scene.cluster.brokers.values():
            scene.run(Deferred.fromCoroutine(machine.program.coordinators.lag.sample()))
        scene.sample()
        commit(scene, "kitchen", {0: 20})
    return scene


def values(document, name):
    """Return the known values of a series, by broker."""
    known = {row["broker_id"]: row["series"][name]["mean"] for row in document["brokers"]}
    return {broker: [value for value in points if value is not None] for broker, points in known.items()}


def test_history_of_a_topic(scene):
    """Any broker returns the points from all leaders, whose sum is the topic's load."""
    document = scene.apis[2].document("GET", "/v1/topics/orders/history", **{"from": -60_000})
    assert document["step_ms"] == 5000
    rates = values(document, "records_in_rate")
    assert sorted(rates) == [1, 2, 3], "each broker leads a partition"
    leader = scene.cluster.leader_of("orders", 0)
    assert max(rates[leader]) == pytest.approx(3, rel=0.4)
    assert rates[leader][-1] == 0
    assert all(max(points) == 0 for broker, points in rates.items() if broker != leader)
    sizes = values(document, "size_bytes")
    assert sum(points[-1] for points in sizes.values()) == scene.topics()["orders"]["size_bytes"]
    longer = scene.apis[1].document("GET", "/v1/topics/orders/history", series="size_bytes", **{"from": -3_600_000})
    assert longer["step_ms"] == COARSE_MS
    assert list(longer["brokers"][0]["series"]) == ["size_bytes"]


def test_history_of_a_group(scene):
    """A group's points come from its coordinator; the lag includes partitions without a commit."""
    document = scene.apis[3].document("GET", "/v1/groups/kitchen/history", **{"from": -60_000})
    (lags,) = values(document, "lag").values()
    assert lags == [30, 10, 10]
    (consumed,) = values(document, "consumed_rate").values()
    assert consumed == [pytest.approx(2, rel=0.4), 0]
    (members,) = values(document, "members").values()
    assert members == [0, 0, 0]


def test_unknown_topic_and_series(scene):
    """The error names an unknown topic or series; a group without samples has no points."""
    with pytest.raises(KafkaError, match="topic 'nosuch' does not exist"):
        scene.apis[1].document("GET", "/v1/topics/nosuch/history")
    with pytest.raises(Problem, match="series: unknown series 'lags'") as refused:
        scene.apis[1].document("GET", "/v1/groups/kitchen/history", series="lags")
    assert refused.value.what_to_do == "Did you mean lag?"
    assert scene.apis[1].document("GET", "/v1/groups/nosuch/history")["brokers"] == []
