"""Lag of a streaming query, from the progress reports of this source or of Spark's Kafka source.

Python data sources cannot add metrics to a query's progress report, but the report contains the read and the latest
offsets.
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
    """Lag of one query after one micro-batch.

    :param name: name of the query, or None.
    :param behind: unread offsets of each partition, including gaps and control records.
    """

    query_id: UUID
    name: str | None
    batch_id: int
    behind: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Total lag of all partitions, in offsets."""
        return sum(self.behind.values())

    @property
    def least(self) -> int:
        """Smallest lag of a partition; ``minOffsetsBehindLatest`` in Spark's Kafka source."""
        return min(self.behind.values(), default=0)

    @property
    def most(self) -> int:
        """Largest lag of a partition; ``maxOffsetsBehindLatest`` in Spark's Kafka source."""
        return max(self.behind.values(), default=0)

    @property
    def average(self) -> float:
        """Mean lag of the partitions; ``avgOffsetsBehindLatest`` in Spark's Kafka source."""
        return self.total / len(self.behind) if self.behind else 0.0


def lag_of(progress: StreamingQueryProgress | Mapping[str, Any]) -> Lag:
    """Return the lag contained in a progress report.

    Sources whose offsets are not topic offsets, such as files, are ignored.

    :param progress: ``query.lastProgress``, or the progress passed to a listener.
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


def _offsets(reported: Any) -> dict[TopicPartition, int] | None:
    """Parse offsets from a progress report, as JSON text or an object; None if absent or not topic offsets."""
    try:
        rows = json.loads(reported) if isinstance(reported, str) else reported
        return from_json(rows)
    except (AttributeError, TypeError, ValueError):
        return None


class LagListener(StreamingQueryListener):
    """Reports the lag of each query after each micro-batch: ``spark.streams.addListener(LagListener(print))``.

    Queries that do not read topics, and idle queries, are ignored.

    :param on_lag: called in a thread of Spark, and must return quickly; Spark logs its exceptions.
    :ivar last: latest lag of each running query, by query ID.
    """

    def __init__(self, on_lag: Callable[[Lag], object] | None = None) -> None:
        self._on_lag = on_lag
        self.last: dict[UUID, Lag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the lag is not known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag after a micro-batch."""
        lag = lag_of(event.progress)
        if lag.behind:
            self.last[lag.query_id] = lag
            if self._on_lag is not None:
                self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the lag of an idle query does not change."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Remove the lag of a query that has ended."""
        self.last.pop(event.id, None)
