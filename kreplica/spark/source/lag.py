"""How far a streaming query is behind its topics: what Spark's progress of our source, or of its Kafka source, says.

Sources in Python cannot put metrics into a query's progress; where they read up to, and what there was, is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kreplica.model import TopicPartition
from kreplica.spark.source.positions import from_json


@dataclass(frozen=True, slots=True)
class Lag:
    """Of one query after one micro-batch.

    :param name: the query's, where it has one.
    :param behind: offsets of each partition that were there and are not read yet; of gaps and markers too.
    """

    query_id: UUID
    name: str | None
    batch_id: int
    behind: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Of all partitions."""
        return sum(self.behind.values())

    @property
    def least(self) -> int:
        """The JVM's source calls it ``minOffsetsBehindLatest``."""
        return min(self.behind.values(), default=0)

    @property
    def most(self) -> int:
        """The JVM's source calls it ``maxOffsetsBehindLatest``."""
        return max(self.behind.values(), default=0)

    @property
    def average(self) -> float:
        """The JVM's source calls it ``avgOffsetsBehindLatest``."""
        return self.total / len(self.behind) if self.behind else 0.0


def lag_of(progress: StreamingQueryProgress | Mapping[str, Any]) -> Lag:
    """The lag that a progress tells of.

    Sources whose offsets are not those of topics, files for example, are left out.

    :param progress: ``query.lastProgress``, or what a listener is given.
    """
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if end is None or latest is None:
            continue
        for partition, offset in latest.items():
            count = max(0, offset - end.get(partition, 0))
            behind[partition] = behind.get(partition, 0) + count
    return Lag(UUID(str(progress["id"])), progress["name"], progress["batchId"], behind)


def _offsets(told: Any) -> dict[TopicPartition, int] | None:
    """Offsets as a progress has them, text or an object; None where they are of something else, or not there."""
    try:
        rows = json.loads(told) if isinstance(told, str) else told
        return from_json(rows)
    except (AttributeError, TypeError, ValueError):
        return None


class LagListener(StreamingQueryListener):
    """Tells the lag of each query after each of its micro-batches: ``spark.streams.addListener(LagListener(print))``.

    Queries that do not read topics are left alone; what is idle has no news.

    :param on_lag: is called in a thread of Spark's, and should be quick; what it raises Spark logs.
    :ivar last: of each query that runs, by its id.
    """

    def __init__(self, on_lag: Callable[[Lag], object] | None = None) -> None:
        self._on_lag = on_lag
        self.last: dict[UUID, Lag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done."""
        lag = lag_of(event.progress)
        if lag.behind:
            self.last[lag.query_id] = lag
            if self._on_lag is not None:
                self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There is nothing to read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """It is not behind any more."""
        self.last.pop(event.id, None)
