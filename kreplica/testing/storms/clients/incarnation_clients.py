"""Clients of one incarnation of a partition, which send no requests after it was deleted."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.clients.fetched_records import records_of
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.histories.record_history import Listener

WAIT_MS = 2000
EARLIEST = -2


class PartitionDeletedError(KafkaError):
    """The incarnation of a partition was deleted, even if there is a new partition with the same name."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was deleted")


class IncarnationClient(LeaderClient):
    """Finds the leader of a partition while the incarnation exists.

    :ivar exists: returns True while the incarnation exists.
    """

    exists: Callable[[], bool]

    async def _find_leader(self) -> tuple[str, int]:
        address = await super()._find_leader()
        if not self.exists():
            raise PartitionDeletedError
        return address


class IncarnationConsumer(TailingConsumer):
    """Fetches with topic ID and leader epoch, and so never receives records of another incarnation.

    :param records_may_be_deleted: returns True if the oldest records may have been deleted.
    """

    def __init__(
        self,
        client: IncarnationClient,
        topic_id: UUID,
        topic: str,
        partition: int,
        history: Listener,
        records_may_be_deleted: Callable[[], bool],
    ) -> None:
        super().__init__(client.reactor, client, topic, partition, history)
        self._incarnation_client = client
        self._topic_id = topic_id
        self._records_may_be_deleted = records_may_be_deleted

    async def _read(self) -> None:
        client = self._incarnation_client
        await client.connection()
        row = await client.fetch_row(
            self._topic_id, self._partition, self.position, wait_ms=WAIT_MS, leader_epoch=client.leader_epoch
        )
        if row["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE and self._records_may_be_deleted():
            self.position = await client.list_offset(self._topic, self._partition, EARLIEST)
            self._history.sought(self._partition, self.position, client.client_id)
            return
        records = records_of(row, self.position)
        if records:
            self._history.read(self._partition, records, client.client_id)
            self.position = records[-1].offset + 1
