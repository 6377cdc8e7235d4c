"""Offsets of the open transactions of one shard; ``Offsets`` applies them at the end of their transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kreplica.groups.offset_memory import PENDING_BYTES, OffsetAccounts
from kreplica.groups.records import OffsetKey


class _Pending:
    """Offset of one partition in an open transaction.

    :ivar value: None if the offset was superseded, so that the outcome of the transaction does not matter.
    :ivar order: position among the transactional records in log order; -1 until the record is committed to the log.
    """

    __slots__ = ("order", "value")

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.order = -1


class TransactionalOffsets:
    """Offsets of open transactions, by producer and by partition; owned by the ``Offsets`` of the shard.

    :param accounts: charged for the memory of these offsets.
    """

    def __init__(self, accounts: OffsetAccounts) -> None:
        self._accounts = accounts
        self._by_producer: dict[int, dict[OffsetKey, _Pending]] = {}
        self._by_group: dict[str, dict[tuple[str, int], dict[int, _Pending]]] = {}
        self._order = 0

    def group_ids(self) -> Iterable[str]:
        """Return the ids of the groups with offsets in open transactions."""
        return self._by_group

    def has(self, group_id: str) -> bool:
        """Return True if a group has offsets in open transactions."""
        return group_id in self._by_group

    def partitions_of(self, group_id: str) -> Iterable[tuple[str, int]]:
        """Return the topics and partitions for which a group has offsets in open transactions."""
        return self._by_group.get(group_id, ())

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if an open transaction has an offset of this partition (KIP-447)."""
        partitions = self._by_group.get(group_id)
        return partitions is not None and (topic, partition) in partitions

    def register(self, producer_id: int, key: OffsetKey) -> _Pending:
        """Register an offset that has been appended but not committed yet; its partition becomes unstable."""
        transaction = self._by_producer.setdefault(producer_id, {})
        pending = transaction.get(key)
        if pending is None:
            pending = transaction[key] = _Pending()
            self._accounts.add(key.group_id, PENDING_BYTES)
            self._by_group.setdefault(key.group_id, {}).setdefault(key[1:], {})[producer_id] = pending
        return pending

    def put(self, producer_id: int, key: OffsetKey, value: bytes) -> None:
        """Store the encoded value of a committed record until its transaction ends."""
        pending = self.register(producer_id, key)
        self._order += 1
        pending.order = self._order
        self._set_value(key.group_id, pending, value)

    def supersede(self, key: OffsetKey) -> None:
        """Discard a partition's offsets up to the current end of the log, because of a later record."""
        self._supersede(key, self._order)

    def end(self, producer_id: int, committed: bool) -> Iterator[tuple[OffsetKey, bytes]]:
        """Remove the offsets of an ended transaction; yield those that take effect.

        :param committed: False if the transaction was aborted, so that no offsets take effect.
        """
        for key, pending in self._by_producer.pop(producer_id, {}).items():
            value = pending.value
            if committed and value is not None:
                self._supersede(key, pending.order)
                yield key, value
            self._remove(producer_id, key)

    def clear(self) -> None:
        """Discard all offsets."""
        self._by_producer = {}
        self._by_group = {}

    def _supersede(self, key: OffsetKey, order: int) -> None:
        for pending in self._by_group.get(key.group_id, {}).get(key[1:], {}).values():
            if is_superseded(pending.order, order):
                self._set_value(key.group_id, pending, None)

    def _set_value(self, group_id: str, pending: _Pending, value: bytes | None) -> None:
        self._accounts.add(group_id, len(value or b"") - len(pending.value or b""))
        pending.value = value

    def _remove(self, producer_id: int, key: OffsetKey) -> None:
        """Remove an offset of an ended transaction; the partition may become stable."""
        group = self._by_group[key.group_id]
        partition = group[key[1:]]
        self._set_value(key.group_id, partition.pop(producer_id), None)
        self._accounts.add(key.group_id, -PENDING_BYTES)
        if not partition:
            del group[key[1:]]
        if not group:
            del self._by_group[key.group_id]


def is_superseded(order: int, by_order: int) -> bool:
    """Return True if a transactional record precedes another record in the log."""
    return order <= by_order
