"""Lag of a query, computed from Spark's progress reports."""

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
    """Offsets are JSON objects or text; the lag of a new partition is all of its records."""
    end, latest = {"a": {"0": 10, "1": 5}}, {"a": {"0": 13, "1": 5}, "b": {"0": 6}}
    for given in ((end, latest), (json.dumps(end), json.dumps(latest))):
        lag = lag_of(progress(given))
        assert lag.behind == {TopicPartition("a", 0): 3, TopicPartition("a", 1): 0, TopicPartition("b", 0): 6}
        assert (lag.total, lag.least, lag.most, lag.average) == (9, 0, 6, 3.0)
        assert (lag.query_id, lag.name, lag.batch_id) == (UUID(ID), "orders", 7)


def test_other_sources_are_left_out() -> None:
    """File and socket sources, and sources without progress, are ignored; two sources of one topic are added."""
    ours = ({"a": {"0": 1}}, {"a": {"0": 3}})
    lag = lag_of(
        progress(({"logOffset": 3}, None), ("17", "18"), (None, {"a": {"0": 9}}), ("null", "null"), ours, ours)
    )
    assert lag.behind == {TopicPartition("a", 0): 4}
    nothing = lag_of(progress(('{"logOffset": 3}', "null")))
    assert (nothing.total, nothing.least, nothing.most, nothing.average) == (0, 0, 0, 0.0)


def test_a_listener_logs_and_stores_the_lag() -> None:
    """Until the query ends; queries without topics are ignored."""
    messages: list[Lag] = []
    listener = LagListener(messages.append)
    listener.onQueryProgress(SimpleNamespace(progress=progress(("17", "18"))))
    assert messages == []
    listener.onQueryProgress(SimpleNamespace(progress=progress(({"a": {"0": 1}}, {"a": {"0": 3}}))))
    assert [lag.total for lag in messages] == [2]
    assert listener.last == {UUID(ID): messages[0]}
    listener.onQueryTerminated(SimpleNamespace(id=UUID(ID)))
    assert listener.last == {}
