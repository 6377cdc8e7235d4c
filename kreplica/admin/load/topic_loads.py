"""Load of topics: records, bytes and rates, which only the leaders of the partitions can report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.load.shared_loads import Load, Rows, SharedLoads
from kreplica.admin.load.tables import NUMBER, TEXT, Table, TableFormat
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

PATH = "/v1/loads/topics"

TABLE = TableFormat(
    {
        "topic": (TEXT, "Names of the topics with a replica on this broker."),
        "leaders": (NUMBER, "Partitions that this broker leads."),
        "records": (NUMBER, "Span of offsets from log start offset to high watermark, summed over led partitions."),
        "size_bytes": (NUMBER, "Size of the logs of led partitions."),
        "disk_bytes": (NUMBER, "Size of all logs of the topic on this broker."),
        "records_in_rate": (NUMBER, "Records appended per second to led partitions."),
        "bytes_in_rate": (NUMBER, "Bytes appended per second to led partitions, as stored."),
        "bytes_out_rate": (NUMBER, "Bytes per second that consumers fetched from led partitions."),
    }
)


class TopicLoad(NamedTuple):
    """The load of a topic, on one broker or on all of them; see ``TABLE``."""

    leaders: int = 0
    records: int = 0
    size_bytes: int = 0
    disk_bytes: int = 0
    records_in_rate: float = 0.0
    bytes_in_rate: float = 0.0
    bytes_out_rate: float = 0.0


class LocalTopicLoads(Protocol):
    """The load of the topics on this broker."""

    async def current(self) -> Mapping[str, TopicLoad]:
        """Return the load by topic, at most a few seconds old."""


class TopicLoads:
    """Serves this broker's table, and merges the tables of all brokers.

    :param now_ms: the wall clock.
    """

    def __init__(
        self, reactor: Reactor, now_ms: Callable[[], int], local: LocalTopicLoads, others: OtherBrokers
    ) -> None:
        self._reactor = reactor
        self._now_ms = now_ms
        self._local = local
        self._all = SharedLoads(reactor, others, PATH, TABLE, self._table, self._merge, "TopicLoads")

    def routes(self) -> Sequence[Route]:
        """Return the route for other brokers."""
        summary = "Records, bytes and rates of this broker's topics, in columns; GET /v1/topics merges all brokers."
        return (Route("GET", PATH, self.read, summary, response=TABLE.described_schema("TopicLoads")),)

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/loads/topics``."""
        return JsonResponse(await self._table())

    def all(self, call: Call) -> Awaitable[Load[Mapping[str, TopicLoad]]]:
        """Return the load of each topic, summed over all brokers; see ``SharedLoads.current``."""
        return self._all.current(call)

    async def _table(self) -> Table:
        loads = await self._local.current()
        rows = ((topic, *load) for topic, load in loads.items())
        return await TABLE.document(self._reactor, self._now_ms(), rows)

    async def _merge(self, tables: list[Rows]) -> Mapping[str, TopicLoad]:
        time_slice = TimeSlice(self._reactor)
        merged: dict[str, TopicLoad] = {}
        for rows in tables:
            for topic, *values in rows:
                total = merged.get(topic)
                merged[topic] = TopicLoad(*(map(sum, zip(total, values, strict=True)) if total else values))
                if time_slice.is_over:
                    await time_slice.next()
        return merged
