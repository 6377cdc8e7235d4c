"""Offset lookup for reads: the selected partitions, and the offsets at which a read starts and ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kreplica.blocking import Cluster
from kreplica.blocking.admin import topic_names
from kreplica.blocking.offsets import earliest_offsets, end_offsets, offsets_by_time
from kreplica.client_core.errors import BrokerRefused, GaveUp
from kreplica.client_core.offsets import EARLIEST, LATEST, NO_OFFSET
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.spark.source.options import Partitions, Selection, SourceOptions, TopicPattern, Topics
from kreplica.spark.source.positions import AtTime, Everywhere, NoMatch, Offsets, Position

log = logging.getLogger(__name__)

T = TypeVar("T")

APPEARANCE_S = 5.0
"""How long to wait for a named topic that does not exist yet, since it may be new."""


class OffsetLookup:
    """Looks up partitions and offsets in the cluster, with the retries that the options set.

    :param cluster: stays open; the caller closes it.
    """

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def partitions(self) -> list[TopicPartition]:
        """Return the selected partitions that currently exist, sorted.

        :raise ClientError: no broker responds.
        """
        return self._retried(self._partitions)

    def named_partitions(self) -> list[TopicPartition]:
        """Return the selected partitions; those named by options must exist.

        :raise ValueError: a named topic or partition does not exist.
        :raise ClientError: no broker responds.
        """
        runtime = self._cluster.runtime
        deadline_s = runtime.clock() + APPEARANCE_S
        while True:
            found = self.partitions()
            missing = missing_name(self._options.selection, found)
            if missing is None:
                return found
            if runtime.clock() >= deadline_s:
                raise ValueError(f"{missing} does not exist")
            runtime.sleep(self._cluster.options.backoff_s)

    def _partitions(self) -> list[TopicPartition]:
        selection = self._options.selection
        if isinstance(selection, Partitions):
            named = {each.topic for each in selection.partitions}
            return [each for each in self._of_topics(sorted(named)) if each in selection.partitions]
        if isinstance(selection, TopicPattern):
            matches = re.compile(selection.pattern).fullmatch
            return self._of_topics([name for name in topic_names(self._cluster) if matches(name)])
        assert isinstance(selection, Topics)
        return self._of_topics(sorted(selection.names))

    def _of_topics(self, names: Iterable[str]) -> list[TopicPartition]:
        wanted = list(names)
        view = self._cluster.retrying(lambda: self._cluster.refresh(wanted))
        found = []
        for name in wanted:
            topic = view.topics.get(name)
            if topic is not None:
                found += [TopicPartition(name, each.partition) for each in topic.partitions]
            elif view.problems.get(name) not in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise BrokerRefused(view.problems[name], f"topic {name}")
        return sorted(found)

    def offsets(
        self, position: Position, partitions: Iterable[TopicPartition], option: str
    ) -> dict[TopicPartition, int]:
        """Return the offset that a position denotes in each partition.

        :param option: the option that gave the position, named in errors.
        :raise ValueError: the option names other partitions, or a timestamp after the last record.
        """
        wanted = list(partitions)
        if isinstance(position, Everywhere):
            return self.earliest(wanted) if position.offset == EARLIEST else self.latest(wanted)
        if isinstance(position, AtTime):
            return self._at_time(position, wanted, option)
        _check_same(position.offsets, wanted, option)
        found = dict(position.offsets)
        for mark, ask in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            found.update(ask([each for each in wanted if found[each] == mark]))
        return found

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._retried(lambda: earliest_offsets(self._cluster, partitions)) if partitions else {}

    def latest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of the readable records of each partition, for the configured isolation level."""
        if not partitions:
            return {}
        return self._retried(lambda: end_offsets(self._cluster, partitions, self._options.settings.isolation))

    def _at_time(self, position: AtTime, wanted: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
        if position.everywhere_ms is not None:
            times: Mapping[TopicPartition, int] = dict.fromkeys(wanted, position.everywhere_ms)
        else:
            _check_same(position.times_ms, wanted, option)
            times = position.times_ms
        if not times:
            return {}
        isolation = self._options.settings.isolation
        found = self._retried(lambda: offsets_by_time(self._cluster, times, isolation))
        offsets = {each: timed.offset for each, timed in found.items()}
        behind = [each for each, offset in offsets.items() if offset == NO_OFFSET]
        if behind and position.no_match is NoMatch.ERROR:
            first = behind[0]
            raise ValueError(f"{option}: {first} has no record at or after {times[first]} ms")
        return offsets | self.latest(behind)

    def _retried(self, ask: Callable[[], T]) -> T:
        left = self._options.offset_retries
        while True:
            try:
                return ask()
            except GaveUp as error:
                if not left:
                    raise
                left -= 1
                log.warning("retrying the offset lookup: %s", error)
                self._cluster.runtime.sleep(self._options.offset_retry_s)


def missing_name(selection: Selection, found: Iterable[TopicPartition]) -> str | None:
    """Return a topic or partition that options name and that was not found, or None; a pattern names nothing."""
    there = set(found)
    if isinstance(selection, Partitions):
        partition = min(selection.partitions - there, default=None)
        return None if partition is None else f"option 'assign': partition {partition}"
    if isinstance(selection, Topics):
        topic = min(set(selection.names) - {each.topic for each in there}, default=None)
        return None if topic is None else f"option 'subscribe': topic {topic!r}"
    return None


def _check_same(given: Offsets, wanted: list[TopicPartition], option: str) -> None:
    """:raise ValueError: an option names partitions other than those that are read."""
    missing, more = sorted(set(wanted) - given.keys()), sorted(given.keys() - set(wanted))
    if missing:
        raise ValueError(f"{option} must name each partition that is read; {missing[0]} is missing")
    if more:
        raise ValueError(f"{option} names {more[0]}, which is not read or does not exist")
