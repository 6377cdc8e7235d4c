"""How far a query is behind, by what Spark tells of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from uuid import UUID

from kreplica.model import TopicPartition
from kreplica.spark.source.lag import Lag, LagListener, lag_of

ID = "2ad0c08b-62db-43bd-ab3e-5e71d79e0810"


def progress(*sources: tuple[object, object]) -> dict:
    rows = [{"endOffset": end, "latestOffset": latest} for end, latest in sources]
    return {"id": ID, "name": "orders", "batchId": 7, "sources": rows}


def test_lag_by_partition_and_in_all() -> None:
    """Offsets are objects in JSON, or text; a partition that was added is behind by all it has."""
    end, latest = {"a": {"0": 10, "1": 5}}, {"a": {"0": 13, "1": 5}, "b": {"0": 6}}
    for given in ((end, latest), (json.dumps(end), json.dumps(latest))):
        lag = lag_of(progress(given))
        assert lag.behind == {TopicPartition("a", 0): 3, TopicPartition("a", 1): 0, TopicPartition("b", 0): 6}
        assert (lag.total, lag.least, lag.most, lag.average) == (9, 0, 6, 3.0)
        assert (lag.query_id, lag.name, lag.batch_id) == (UUID(ID), "orders", 7)


def test_other_sources_are_left_out() -> None:
    """Those of files, of sockets, and those that have not begun; two of the same topic are added up."""
    ours = ({"a": {"0": 1}}, {"a": {"0": 3}})
    lag = lag_of(
        progress(({"logOffset": 3}, None), ("17", "18"), (None, {"a": {"0": 9}}), ("null", "null"), ours, ours)
    )
    assert lag.behind == {TopicPartition("a", 0): 4}
    nothing = lag_of(progress(('{"logOffset": 3}', "null")))
    assert (nothing.total, nothing.least, nothing.most, nothing.average) == (0, 0, 0, 0.0)


def test_a_listener_tells_and_remembers() -> None:
    """Until the query ends; of queries without topics it says nothing."""
    told: list[Lag] = []
    listener = LagListener(told.append)
    listener.onQueryProgress(SimpleNamespace(progress=progress(("17", "18"))))
    assert told == []
    listener.onQueryProgress(SimpleNamespace(progress=progress(({"a": {"0": 1}}, {"a": {"0": 3}}))))
    assert [lag.total for lag in told] == [2]
    assert listener.last == {UUID(ID): told[0]}
    listener.onQueryTerminated(SimpleNamespace(id=UUID(ID)))
    assert listener.last == {}
