"""Load of groups: members, topics and lag, which only the groups' coordinators can report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.load.shared_loads import Load, Rows, SharedLoads
from kreplica.admin.load.tables import NUMBER, NUMBER_OR_NULL, TEXT, TEXTS, Table, TableFormat
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

PATH = "/v1/loads/groups"

TABLE = TableFormat(
    {
        "group": (TEXT, "IDs of the groups that this broker coordinates."),
        "coordinator": (NUMBER, "This broker."),
        "type": (TEXT, "`classic` or `consumer` (KIP-848)."),
        "protocol_type": (TEXT, "For example, `consumer` or `connect`."),
        "state": (TEXT, "State as in ListGroups."),
        "members": (NUMBER, "Number of members."),
        "topics": (TEXTS, "Topics with committed offsets, and subscribed topics."),
        "partitions": (NUMBER, "Partitions of these topics."),
        "partitions_without_commit": (NUMBER, "Partitions of these topics without a committed offset."),
        "lag": (NUMBER_OR_NULL, "Unread records; in partitions without a committed offset, all records."),
        "lag_without_commit": (NUMBER, "The part of the lag in partitions without a committed offset."),
        "last_commit_at_ms": (NUMBER_OR_NULL, "Time of the last commit; null if there was none."),
        "status": (TEXT, "The worst status of a partition: OK, WARN, STALLED or STOPPED."),
    }
)


class GroupLoad(NamedTuple):
    """The load of a group; see ``TABLE``."""

    group: str
    coordinator: int
    type: str
    protocol_type: str
    state: str
    members: int
    topics: Sequence[str]
    partitions: int
    partitions_without_commit: int
    lag: int | None
    lag_without_commit: int
    last_commit_at_ms: int | None
    status: str


@dataclass(frozen=True, slots=True)
class ClusterGroups:
    """The groups of all brokers.

    :param groups: by ID.
    :param readers: number of groups by topic.
    """

    groups: dict[str, GroupLoad] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)


class LocalGroupLoads(Protocol):
    """The groups that this broker coordinates."""

    async def current(self) -> Sequence[GroupLoad]:
        """Return the load of each group."""


class GroupLoads:
    """Serves this broker's table, and merges the tables of all brokers.

    :param now_ms: the wall clock.
    """

    def __init__(
        self, reactor: Reactor, now_ms: Callable[[], int], local: LocalGroupLoads, others: OtherBrokers
    ) -> None:
        self._reactor = reactor
        self._now_ms = now_ms
        self._local = local
        self._all = SharedLoads(reactor, others, PATH, TABLE, self._table, self._merge, "GroupLoads")

    def routes(self) -> Sequence[Route]:
        """Return the route for other brokers."""
        summary = "Members and lag of the groups of this coordinator, in columns; GET /v1/groups merges all brokers."
        return (Route("GET", PATH, self.read, summary, response=TABLE.described_schema("GroupLoads")),)

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/loads/groups``."""
        return JsonResponse(await self._table())

    def all(self, call: Call) -> Awaitable[Load[ClusterGroups]]:
        """Return the groups of all brokers; see ``SharedLoads.current``."""
        return self._all.current(call)

    async def _table(self) -> Table:
        return await TABLE.document(self._reactor, self._now_ms(), await self._local.current())

    async def _merge(self, tables: list[Rows]) -> ClusterGroups:
        time_slice = TimeSlice(self._reactor)
        merged = ClusterGroups()
        for rows in tables:
            for row in rows:
                group = GroupLoad(*row)
                merged.groups[group.group] = group
                for topic in group.topics:
                    merged.readers[topic] = merged.readers.get(topic, 0) + 1
                if time_slice.is_over:
                    await time_slice.next()
        return merged
