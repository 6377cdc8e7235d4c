"""Consumer with an isolation level, for topics with transactional records."""

from __future__ import annotations

from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.runtime import Reactor
from kreplica.testing.clients.fetched_records import visible_records
from kreplica.testing.clients.tailing_consumer import WAIT_MS, TailingConsumer
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.histories.transaction_history import TransactionHistory


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
            received = [(record.offset, record.value or b"") for record in records]
            self._transaction_history.received(
                self._partition, received, self._client.client_id, read_committed=self._read_committed
            )
