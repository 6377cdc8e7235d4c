"""Looks up the selected partitions, and the offsets at which a read starts and ends."""

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
from kreplica.spark.source.positions import AtTime, CommonOffset, NoMatch, Offsets, Position

log = logging.getLogger(__name__)

T = TypeVar("T")

NEW_TOPIC_WAIT_S = 5.0
"""Time to wait for a selected topic that the brokers do not know; it may just have been created."""


class OffsetLookup:
    """Looks up partitions and offsets in the cluster; the options set the number of retries.

    :param cluster: closed by the caller.
    """

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def partitions(self) -> list[TopicPartition]:
        """Return the selected partitions that currently exist, sorted.

        :raise ClientError: no broker responds.
        """
        return self._retry(self._partitions)

    def named_partitions(self) -> list[TopicPartition]:
        """Return the selected partitions; those named in the options must exist.

        :raise ValueError: a named topic or partition does not exist.
        :raise ClientError: no broker responds.
        """
        runtime = self._cluster.runtime
        deadline_s = runtime.clock() + NEW_TOPIC_WAIT_S
        while True:
            found = self.partitions()
            missing = find_missing(self._options.selection, found)
            if missing is None:
                return found
            if runtime.clock() >= deadline_s:
                raise ValueError(f"{missing} does not exist")
            runtime.sleep(self._cluster.options.backoff_s)

    def _partitions(self) -> list[TopicPartition]:
        selection = self._options.selection
        if isinstance(selection, Partitions):
            topics = {each.topic for each in selection.partitions}
            return [each for each in self._partitions_of(sorted(topics)) if each in selection.partitions]
        if isinstance(selection, TopicPattern):
            matches = re.compile(selection.pattern).fullmatch
            return self._partitions_of([name for name in topic_names(self._cluster) if matches(name)])
        assert isinstance(selection, Topics)
        return self._partitions_of(sorted(selection.names))

    def _partitions_of(self, names: Iterable[str]) -> list[TopicPartition]:
        requested = list(names)
        view = self._cluster.retrying(lambda: self._cluster.refresh(requested))
        found = []
        for name in requested:
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

        :param option: the option that sets the position, for error messages.
        :raise ValueError: the option names other partitions, or a timestamp after the last record.
        """
        requested = list(partitions)
        if isinstance(position, CommonOffset):
            return self.earliest(requested) if position.offset == EARLIEST else self.latest(requested)
        if isinstance(position, AtTime):
            return self._at_time(position, requested, option)
        _check_partitions(position.offsets, requested, option)
        found = dict(position.offsets)
        for special_offset, lookup in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            found.update(lookup([each for each in requested if found[each] == special_offset]))
        return found

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._retry(lambda: earliest_offsets(self._cluster, partitions)) if partitions else {}

    def latest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's readable records at the configured isolation level."""
        if not partitions:
            return {}
        return self._retry(lambda: end_offsets(self._cluster, partitions, self._options.settings.isolation))

    def _at_time(self, position: AtTime, requested: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
        if position.common_ms is not None:
            times: Mapping[TopicPartition, int] = dict.fromkeys(requested, position.common_ms)
        else:
            _check_partitions(position.times_ms, requested, option)
            times = position.times_ms
        if not times:
            return {}
        isolation = self._options.settings.isolation
        found = self._retry(lambda: offsets_by_time(self._cluster, times, isolation))
        offsets = {each: timed.offset for each, timed in found.items()}
        without_match = [each for each, offset in offsets.items() if offset == NO_OFFSET]
        if without_match and position.no_match is NoMatch.ERROR:
            first = without_match[0]
            raise ValueError(f"{option}: {first} has no record at or after {times[first]} ms")
        return offsets | self.latest(without_match)

    def _retry(self, lookup: Callable[[], T]) -> T:
        retries_left = self._options.offset_retries
        while True:
            try:
                return lookup()
            except GaveUp as error:
                if not retries_left:
                    raise
                retries_left -= 1
                log.warning("retrying the offset lookup: %s", error)
                self._cluster.runtime.sleep(self._options.offset_retry_s)


def find_missing(selection: Selection, found: Iterable[TopicPartition]) -> str | None:
    """Return a selected topic or partition that was not found, or None; a pattern selects only existing topics."""
    existing = set(found)
    if isinstance(selection, Partitions):
        partition = min(selection.partitions - existing, default=None)
        return None if partition is None else f"option 'assign': partition {partition}"
    if isinstance(selection, Topics):
        topic = min(set(selection.names) - {each.topic for each in existing}, default=None)
        return None if topic is None else f"option 'subscribe': topic {topic!r}"
    return None


def _check_partitions(offsets: Offsets, requested: list[TopicPartition], option: str) -> None:
    """Check that an option contains exactly the partitions that are read.

    :raise ValueError: the option lacks a partition, or contains one that is not read.
    """
    missing, additional = sorted(set(requested) - offsets.keys()), sorted(offsets.keys() - set(requested))
    if missing:
        raise ValueError(f"{option} must contain each partition that is read; {missing[0]} is missing")
    if additional:
        raise ValueError(f"{option} contains {additional[0]}, which is not read or does not exist")
