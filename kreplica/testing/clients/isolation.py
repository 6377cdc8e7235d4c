"""Consumer with an isolation level, for topics that are written to in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.runtime import Reactor
from kreplica.testing.clients.tailing_consumer import WAIT_MS, TailingConsumer
from kreplica.testing.clients.wire_client import WireClient, check_batch
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.wire.batches import iter_headers
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import Record, iter_records


class VisibleRecords(NamedTuple):
    """Visible records of one partition in a Fetch response.

    :param position: the next fetch offset, after hidden records too.
    """

    records: list[Record]
    position: int


def visible_records(row: dict[str, Any], position: int) -> VisibleRecords:
    """Return a Fetch response's records without control batches and aborted records.

    :param row: response for one partition; only read_committed responses list aborted transactions.
    :raise KafkaError: the response contains an error, or the records are damaged.
    """
    if row["error_code"]:
        raise KafkaError(ErrorCode.of(row["error_code"]))
    data = memoryview(bytes(row["records"] or b""))
    start = position
    remaining = sorted(row.get("aborted_transactions") or (), key=lambda each: -each["first_offset"])
    aborted: set[int] = set()
    records: list[Record] = []
    for at, header in iter_headers(data, incomplete_last=True):
        check_batch(row, data, header, at, start)
        while remaining and remaining[-1]["first_offset"] <= header.last_offset:
            aborted.add(remaining.pop()["producer_id"])
        batch = list(iter_records(data[at : at + header.size]))
        if header.is_control:
            _end(batch, header.producer_id, aborted)
        elif not (header.is_transactional and header.producer_id in aborted):
            records += [record for record in batch if record.offset >= position]
        position = max(position, header.next_offset)
    return VisibleRecords(records, position)


def _end(markers: Sequence[Record], producer_id: int, aborted: set[int]) -> None:
    """Remove a producer from the aborted ones at its abort marker; later batches belong to another transaction."""
    marker = parse_end_marker(markers[0])
    if marker is not None and not marker.committed:
        aborted.discard(producer_id)


class IsolatedConsumer(TailingConsumer):
    def __init__(
        self,
        reactor: Reactor,
        client: WireClient,
        topic: str,
        partition: int,
        history: TransactionHistory,
        *,
        read_committed: bool,
    ) -> None:
        super().__init__(reactor, client, topic, partition, history)
        self._transaction_history = history
        self._read_committed = read_committed

    async def _read(self) -> None:
        isolation = READ_COMMITTED if self._read_committed else READ_UNCOMMITTED
        row = await self._client.fetch_row(
            self._topic, self._partition, self.position, wait_ms=WAIT_MS, isolation=isolation
        )
        records, self.position = visible_records(row, self.position)
        if records:
            self._transaction_history.given(
                self._partition, records, self._client.client_id, read_committed=self._read_committed
            )
