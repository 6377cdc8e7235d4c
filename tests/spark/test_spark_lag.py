"""The lag of a query, computed from Spark's progress reports."""

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


def test_lag_by_partition_and_in_total() -> None:
    """Offsets may be JSON objects or text; all records of a new partition are its lag."""
    end, latest = {"a": {"0": 10, "1": 5}}, {"a": {"0": 13, "1": 5}, "b": {"0": 6}}
    for offsets in ((end, latest), (json.dumps(end), json.dumps(latest))):
        lag = lag_of(progress(offsets))
        assert lag.behind == {TopicPartition("a", 0): 3, TopicPartition("a", 1): 0, TopicPartition("b", 0): 6}
        assert (lag.total, lag.least, lag.most, lag.average) == (9, 0, 6, 3.0)
        assert (lag.query_id, lag.name, lag.batch_id) == (UUID(ID), "orders", 7)


def test_other_sources_are_ignored() -> None:
    """Sources without topics or progress are ignored; the lags of two sources of one topic are added."""
    topic_source = ({"a": {"0": 1}}, {"a": {"0": 3}})
    lag = lag_of(
        progress(
            ({"logOffset": 3}, None),
            ("17", "18"),
            (None, {"a": {"0": 9}}),
            ("null", "null"),
            topic_source,
            topic_source,
        )
    )
    assert lag.behind == {TopicPartition("a", 0): 4}
    no_lag = lag_of(progress(('{"logOffset": 3}', "null")))
    assert (no_lag.total, no_lag.least, no_lag.most, no_lag.average) == (0, 0, 0, 0.0)


def test_listener_reports_and_stores_the_lag() -> None:
    """The lag is stored until the query ends; queries without topics are ignored."""
    messages: list[Lag] = []
    listener = LagListener(messages.append)
    listener.onQueryProgress(SimpleNamespace(progress=progress(("17", "18"))))
    assert messages == []
    listener.onQueryProgress(SimpleNamespace(progress=progress(({"a": {"0": 1}}, {"a": {"0": 3}}))))
    assert [lag.total for lag in messages] == [2]
    assert listener.last == {UUID(ID): messages[0]}
    listener.onQueryTerminated(SimpleNamespace(id=UUID(ID)))
    assert listener.last == {}
