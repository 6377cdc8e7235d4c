"""Columns, filters, order and pages of lists with up to ten thousand rows."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from uuid import UUID

import pytest
from test_admin_counts import SlowClock
from twisted.internet.defer import Deferred

from kreplica.admin.cluster_state.counts import CachedCounts, TopicCounts
from kreplica.admin.http.api import Call
from kreplica.admin.http.callers import Caller
from kreplica.admin.http.json_stream import dumped
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, COUNT, STRING, listing, nullable
from kreplica.admin.lists.columns import Column, Columns
from kreplica.admin.lists.pages import keys_with, read_page
from kreplica.admin.lists.topic_list import COLUMNS, TopicList, health
from kreplica.admin.load.group_loads import ClusterGroups
from kreplica.admin.load.shared_loads import REUSE_SECONDS, Load
from kreplica.admin.load.topic_loads import TABLE, TopicLoad, TopicLoads
from kreplica.admin.peers.forwarding import PeerResponses
from kreplica.admin.resources.elections import Elections
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.storage.log_config import LogConfig
from kreplica.zookeeper import SessionState

ROWS = {
    "a": {"name": "a", "lag": 5, "state": "Stable", "is_new": True, "tags": ["x"]},
    "b": {"name": "b", "lag": None, "state": "Empty", "is_new": False, "tags": []},
    "c": {"name": "c", "lag": 70, "state": "Stable", "is_new": False, "tags": []},
    "d": {"name": "d", "lag": 5, "state": "Dead", "is_new": False, "tags": []},
}
SMALL = Columns(
    "name",
    [
        Column("name", STRING, is_default=True),
        Column("lag", nullable(COUNT), "load"),
        Column("state", STRING, is_default=True),
        Column("is_new", BOOLEAN),
        Column("tags", listing(STRING)),
    ],
)


def run_to_completion(coroutine, clock):
    """Return the result of a coroutine that waits only for the next iteration of the reactor."""
    deferred = Deferred.fromCoroutine(coroutine)
    for _ in range(100_000):
        if deferred.called:
            return deferred.result
        clock.advance(0)
    raise AssertionError("the coroutine does not end")


def page(clock=None, **query):
    clock = clock or SlowClock()
    call = Call(query={"limit": 10, "after": None, "page": None, "fields": None, "sort": None, "filter": None, **query})
    selection = SMALL.selection(call)
    values = {name: (lambda key, name=name: ROWS[key][name]) for name in SMALL.names}
    return run_to_completion(read_page(clock, list(ROWS), call, selection, values), clock)


def names(**query):
    return "".join(row["name"] for row in page(**query).rows)


def test_only_requested_columns():
    """A row has the key and the requested columns, or the default columns if none are requested."""
    assert page(limit=1).rows == [{"name": "a", "state": "Stable"}]
    assert page(limit=1, fields="tags, lag").rows == [{"name": "a", "tags": ["x"], "lag": 5}]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("name", "abcd"), ("-name", "dcba"), ("lag", "adcb"), ("-lag", "cadb"), ("state", "dbac"), ("is_new", "bcda")],
)
def test_order(sort, expected):
    """Rows with equal values are ordered by key, and rows without a value are last in both directions."""
    assert names(sort=sort) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("lag>5", "c"),
        ("lag>=5,state=Stable", "ac"),
        ("lag<6", "ad"),
        ("lag=null", "b"),
        ("lag!=null", "acd"),
        ("state!=Stable", "bd"),
        ("state~STA", "ac"),
        ("is_new=true", "a"),
        ("lag = 5.0", "ad"),
        ("name=d", "d"),
        ("name!=null", "abcd"),
        ("name=null", ""),
    ],
)
def test_conditions(condition, expected):
    """All conditions must hold; an unknown value satisfies no comparison."""
    assert names(filter=condition) == expected


@pytest.mark.parametrize(
    ("query", "detail", "advice"),
    [
        ({"fields": "name,lags"}, "fields: unknown column 'lags'", "Did you mean lag?"),
        ({"sort": "-tags"}, "sort: unknown column 'tags'", "Columns: name, lag, state, is_new."),
        ({"filter": "lagg>1"}, "filter: unknown column 'lagg'", "Did you mean lag?"),
        ({"filter": "lag>many"}, "filter: lag: 'many' is not a number", "Comma-separated conditions"),
        ({"filter": "is_new=yes"}, "filter: is_new: 'yes' is neither true nor false", "Comma-separated conditions"),
        ({"filter": "lag~5"}, "filter: lag is not a string, so ~ cannot be used", "Comma-separated conditions"),
        ({"filter": "lag"}, "filter: 'lag' is not a condition", "Comma-separated conditions"),
        ({"filter": ",".join(["lag>1"] * 21)}, "filter: 21 conditions exceed the limit of 20", "Comma-separated"),
        ({"sort": "lag", "after": "a"}, "after: this parameter requires a list sorted by name", "Use the"),
        ({"page": 2, "after": "a"}, "after: this parameter requires a list sorted by name", "Use the"),
    ],
)
def test_invalid_parameters(query, detail, advice):
    """The problem names the parameter, the column and the mistake."""
    with pytest.raises(Problem) as refused:
        page(**query)
    assert (refused.value.status, refused.value.detail) == (400, detail)
    assert refused.value.what_to_do.startswith(advice)


def test_pages():
    """Pages are read by number in any order, or after the last key if the list is ordered by key."""
    assert [names(limit=3, page=number, sort="-lag") for number in (1, 2, 3)] == ["cad", "b", ""]
    first = page(limit=3)
    assert (first.following, first.total) == ("c", 4)
    assert names(limit=3, after=first.following) == "d"
    assert page(limit=3, sort="-lag").following is None


def test_sources():
    """A data source is read only if a column, the order or a condition needs it."""
    assert not SMALL.selection(Call(query={})).needs("load")
    for query in ({"fields": "lag"}, {"sort": "lag"}, {"filter": "lag>1"}):
        assert SMALL.selection(Call(query=query)).needs("load")


# --- ten thousand topics ---------------------------------------------------------------------------------------------

TOPICS = 10_000


class Zookeeper:
    async def deleting(self):
        return frozenset({"t-00007"})


class Settings:
    def log_config(self, topic):
        return LogConfig(retention_ms=1000)

    def min_insync_replicas(self, topic):
        return 1


class Loads:
    """Load per topic; counts how often it is read."""

    def __init__(self, content, problems=()):
        self.load = Load(content, problems)
        self.reads = 0

    async def all(self, call):
        self.reads += 1
        return self.load


@pytest.fixture(scope="module")
def metadata():
    cache = MetadataCache(SlowClock())
    states = [
        {
            "topic_name": f"t-{number:05}",
            "topic_id": UUID(int=number + 1),
            "partition_states": [
                {"partition_index": 0, "leader": 1, "leader_epoch": 0, "replicas": [1, 2], "isr": [1, 2]}
            ],
        }
        for number in range(TOPICS)
    ]
    cache.update({"controller_id": 1, "live_brokers": [], "topic_states": states})
    cache.is_complete = True
    return cache


def topic_page(metadata, clock, loads, groups, **query):
    counts = CachedCounts(clock, metadata, lambda topic: 1)
    topics = TopicList(clock, metadata, Zookeeper(), counts, Settings(), loads, groups)
    call = Call(query={"limit": 100, "after": None, "search": None, "internal": True, **query})
    return run_to_completion(topics.read(call), clock).document


def loads_of(metadata, problems=()):
    sizes = {name: TopicLoad(1, 7, int(name[2:]) * 37 % TOPICS, 2, 0.5, 3.25, 4.0) for name in metadata.topics}
    return Loads(sizes, problems)


def test_topics_by_size(metadata):
    """The largest of ten thousand topics are found in slices of at most 5 ms each."""
    clock = SlowClock()
    clock.step_s = 0.0001
    slices = []
    call_later = clock.callLater

    def later(delay_s, work, *args):
        slices.append(clock.rightNow)
        return call_later(delay_s, work, *args)

    clock.callLater = later
    groups = Loads(ClusterGroups(readers={"t-00001": 3}))
    fields = "name,size_bytes,groups,health,retention_ms,cleanup_policy,brokers,bytes_in_rate"
    document = topic_page(metadata, clock, loads_of(metadata), groups, fields=fields, sort="-size_bytes", limit=3)
    assert [row["size_bytes"] for row in document["topics"]] == [9999, 9998, 9997]
    assert (document["total"], document["next"], document["problems"]) == (TOPICS, None, [])
    row = document["topics"][0]
    assert (row["groups"], row["health"], row["retention_ms"], row["cleanup_policy"]) == (0, "healthy", 1000, "delete")
    assert row["bytes_in_rate"] == 3.25
    assert row["brokers"] == [
        {"broker_id": 1, "leaders": 1, "replicas": 1},
        {"broker_id": 2, "leaders": 0, "replicas": 1},
    ]
    lengths = [later - earlier for earlier, later in pairwise(slices)]
    assert len(lengths) > 100
    assert max(lengths) < 0.011


def test_cheap_requests_stay_cheap(metadata):
    """A list of names queries no other broker and is small; a page with all columns has less than 40 kB."""
    loads, groups = loads_of(metadata), Loads(ClusterGroups())
    document = topic_page(metadata, SlowClock(), loads, groups, fields="name")
    assert document["topics"][0] == {"name": "t-00000"}
    assert (loads.reads, groups.reads) == (0, 0)
    assert len(dumped(document)) < 2_500
    fields = ",".join(name for name in COLUMNS.names if name != "brokers")
    document = topic_page(metadata, SlowClock(), loads, groups, fields=fields)
    assert len(dumped(document)) < 60_000
    assert (loads.reads, groups.reads) == (1, 1)


def test_conditions_on_ten_thousand_topics(metadata):
    """Health and load can be filtered; the total includes all matches."""
    groups = Loads(ClusterGroups())
    found = topic_page(metadata, SlowClock(), loads_of(metadata), groups, filter="health=deleting", fields="health")
    assert found["topics"] == [{"name": "t-00007", "health": "deleting"}]
    found = topic_page(metadata, SlowClock(), loads_of(metadata), groups, filter="size_bytes<500", page=5)
    assert (found["total"], len(found["topics"])) == (500, 100)


def test_unknown_load(metadata):
    """If a leader's broker did not respond, the load of the topic is unknown, not zero."""
    loads = Loads({"t-00000": TopicLoad(1, 7, 1, 2)}, ["broker 2: it did not respond"])
    groups = Loads(ClusterGroups(), ["broker 2: it did not respond"])
    document = topic_page(metadata, SlowClock(), loads, groups, fields="size_bytes,groups", limit=2)
    assert document["topics"] == [
        {"name": "t-00000", "size_bytes": 1, "groups": None},
        {"name": "t-00001", "size_bytes": None, "groups": None},
    ]
    assert document["problems"] == ["broker 2: it did not respond"]


def test_load_is_requested_on_behalf_of_this_broker():
    """Callers with different permissions share the load, so it is requested with this broker's permissions."""
    calls = []

    class Others:
        async def request_all(self, call, path, validator, read_local):
            calls.append(call)
            return PeerResponses({1: await read_local()}, [])

    class Local:
        async def current(self):
            return {"a": TopicLoad(1, 2, 3, 4, 5.0, 6.0, 7.0)}

    clock = SlowClock()
    loads = TopicLoads(clock, lambda: 7, Local(), Others())
    alice = Call(caller=Caller(user="User:alice", host="10.0.0.7"), authorization="Basic x")
    found = [run_to_completion(loads.all(alice), clock).content for _ in range(2)]
    assert found == [{"a": TopicLoad(1, 2, 3, 4, 5.0, 6.0, 7.0)}] * 2
    assert [(call.caller.is_super, call.authorization) for call in calls] == [(True, "Basic x")]
    clock.advance(REUSE_SECONDS)
    run_to_completion(loads.all(alice), clock)
    assert len(calls) == 2


@pytest.mark.parametrize(
    "change",
    [{"records": [1, 2]}, {"records": ["x"]}, {"topic": [7]}, {"records": [None]}],
)
def test_invalid_table(change):
    """A table with a column of the wrong length or type is rejected."""
    clock = SlowClock()
    document = {**run_to_completion(TABLE.document(clock, 7, [("a", 1, 2, 3, 4, 5.0, 6.0, 7.0)]), clock), **change}
    with pytest.raises(Problem, match=f"broker 3: the column {next(iter(change))} of its response is invalid"):
        run_to_completion(TABLE.rows(clock, 3, document), clock).raiseException()


class CountingClock(SlowClock):
    """A slow clock that counts how often work yields."""

    step_s = 0.001
    yields = 0

    def callLater(self, *arguments, **options):
        self.yields += 1
        return super().callLater(*arguments, **options)


def test_tables_are_sliced():
    """A table of ten thousand rows is built and validated in slices, and the result is unchanged."""
    rows = [(f"t-{number}", 1, number, 3, 4, 5.0, 6.0, 7.0) for number in range(TOPICS)]
    clock = CountingClock()
    document = run_to_completion(TABLE.document(clock, 7, iter(rows)), clock)
    assert clock.yields > 5
    assert (document["topic"][-1], document["records"][:3]) == ("t-9999", [0, 1, 2])
    clock = CountingClock()
    assert run_to_completion(TABLE.rows(clock, 3, document), clock) == rows
    assert clock.yields > 5


def test_names_are_checked_in_slices():
    clock = CountingClock()
    found = run_to_completion(keys_with(clock, range(TOPICS), lambda number: number % 2 == 0), clock)
    assert found == list(range(0, TOPICS, 2))
    assert clock.yields > 20


def test_elections_are_searched_in_slices(metadata):
    """A fruitless search through ten thousand partitions does not block the reactor."""
    clock = CountingClock()
    client = SimpleNamespace(state=SessionState.SUSPENDED)
    elections = Elections(clock, metadata, client, None)
    response = run_to_completion(elections.list_all(Call(query={"limit": 10})), clock)
    assert response.document == {"pending": None, "needed": []}
    assert clock.yields > 100


def test_health():
    """A topic's health is the worst state of its partitions."""
    assert health(TopicCounts(3, 3, 0, 0, 0), is_deleting=False) == "healthy"
    assert health(TopicCounts(3, 3, 0, 2, 0), is_deleting=False) == "under_replicated"
    assert health(TopicCounts(3, 3, 0, 2, 1), is_deleting=False) == "under_min_isr"
    assert health(TopicCounts(3, 3, 1, 2, 1), is_deleting=False) == "offline"
    assert health(TopicCounts(3, 3, 1, 2, 1), is_deleting=True) == "deleting"
