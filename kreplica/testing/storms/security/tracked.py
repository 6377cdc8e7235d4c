"""The access control data of a cluster: its values in ZooKeeper, and the values that each broker has applied."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kreplica.security.acls.acl import ResourcePattern
from kreplica.security.acls.znodes import decode_acls, path_of
from kreplica.service.composition.broker import Broker


class Source(NamedTuple):
    """Location of a piece of data in ZooKeeper and on a broker.

    :param label: name in errors.
    :param path: path of the znode.
    :param decode: returns the value for the znode's data, which is None if the znode is missing.
    :param reader: for a broker, returns a function that returns the value in use.
    """

    label: str
    path: str
    decode: Callable[[bytes | None], Any]
    reader: Callable[[Broker], Callable[[], Any]]


def acls_of(pattern: ResourcePattern) -> Source:
    """Return the source of the ACLs of a pattern."""

    def reader(broker: Broker) -> Callable[[], Any]:
        assert broker.plugins.acl_authorizer is not None
        return partial(broker.plugins.acl_authorizer.rules.of, pattern)

    path = path_of(pattern)
    return Source(path, path, lambda data: decode_acls(data or b""), reader)


class Timeline:
    """Values over time.

    :ivar values: pairs of the time from which a value applied, and this value.
    """

    def __init__(self) -> None:
        self.values: list[tuple[float, Any]] = []

    def append(self, now_s: float, value: Any) -> None:
        self.values.append((now_s, value))

    @property
    def last(self) -> Any:
        return self.values[-1][1] if self.values else None

    def during(self, begin_s: float, end_s: float) -> list[Any]:
        """Return the values that applied at some moment from ``begin_s`` to ``end_s``, in order."""
        first = max(bisect_left(self.values, begin_s, key=_time) - 1, 0)
        return [value for time_s, value in self.values[first:] if time_s <= end_s]

    def changes(self, begin_s: float, end_s: float) -> list[float]:
        """Return the times of changes in an interval."""
        return [time_s for time_s, _ in self.values if begin_s <= time_s <= end_s]

    def at(self, time_s: float, default: Any) -> Any:
        """Return the value at a time, including a change at that time; ``default`` before the first value."""
        index = bisect_right(self.values, time_s, key=_time)
        return self.values[index - 1][1] if index else default


def _time(entry: tuple[float, Any]) -> float:
    return entry[0]


class TrackedValue:
    """One piece of access control data.

    A broker may skip values, but must apply the other values in the order of ZooKeeper.

    :ivar applied: timelines by broker.
    """

    def __init__(self, source: Source, brokers: list[int]) -> None:
        self.source = source
        self.in_zookeeper = Timeline()
        self.applied = {broker: Timeline() for broker in brokers}
        self._positions: dict[int, int] = {}
        self._data: bytes | None = None
        self._differs_since_s: dict[int, float] = {}

    def written(self, now_s: float, data: bytes | None) -> None:
        """Record the data of the znode."""
        if data is self._data and self.in_zookeeper.values:
            return
        self._data = data
        value = self.source.decode(data)
        if not self.in_zookeeper.values or value != self.in_zookeeper.last:
            self.in_zookeeper.append(now_s, value)

    def restarted(self, broker: int) -> None:
        """Allow a broker that has started again to use any value once."""
        self._positions.pop(broker, None)

    def check(self, broker: int, value: Any, now_s: float) -> str | None:
        """Record the value that a broker uses now; return the violation if it is not the next one in ZooKeeper."""
        timeline = self.applied[broker]
        if broker in self._positions and value == timeline.last:
            return None
        start = self._positions.get(broker, 0)
        written = [stored for _, stored in self.in_zookeeper.values]
        position = next((i for i in range(start, len(written)) if written[i] == value), None)
        if position is None:
            return f"broker {broker} uses an old or unknown value of {self.source.label}: {value!r}"
        self._positions[broker] = position
        timeline.append(now_s, value)
        return None

    def differs_for_s(self, broker: int, now_s: float, since_s: float) -> float:
        """Return the seconds for which a broker that could have applied the value in ZooKeeper has used another value.

        :param since_s: time from which the broker could read the value.
        """
        if not self.in_zookeeper.values or self.applied[broker].last == self.in_zookeeper.last:
            self._differs_since_s.pop(broker, None)
            return 0.0
        changed_s = self.in_zookeeper.values[-1][0]
        begin_s = self._differs_since_s.setdefault(broker, changed_s)
        return now_s - max(begin_s, since_s)

