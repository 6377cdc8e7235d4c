"""How far the groups of one partition of ``__consumer_offsets`` have read, and what may change that soon.

An offset is kept as the very value that lies in the log, a string of bytes of about 60 in memory: a broker may keep
millions of them, and few are ever asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode
from kreplica.groups.records import (
    OFFSET_KEY_VERSIONS,
    CommittedOffset,
    OffsetKey,
    build_offset_key,
    key_version,
    offset_key,
    offset_key_prefix,
    parse_offset_key,
    parse_offset_value,
)

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog
    from kreplica.wire.batches import BatchHeader

Answer = Callable[[ErrorCode], None]
OffsetValues = Sequence[tuple[str, Sequence[tuple[int, bytes]]]]
"""Topics, with partitions and the values that their records have."""


class _Topic:
    """The offsets of one group and topic.

    :ivar values: by partition.
    """

    __slots__ = ("key_prefix", "values")

    def __init__(self, key_prefix: bytes) -> None:
        self.key_prefix = key_prefix
        self.values: dict[int, bytes] = {}


class _Pending:
    """What a transaction that has not ended commits for one partition.

    :ivar value: None where something later counts, whatever becomes of the transaction.
    :ivar order: of its record among those of transactions, in the order of the log; -1 until that is committed.
    """

    __slots__ = ("order", "value")

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.order = -1


class Offsets:
    """Owned by the shard of a partition.  What was appended counts from when it is committed, in the order of the log.

    What a transaction commits counts from its end, but as of its own place in the log: what was committed outside of
    the transaction after that stays.

    :ivar appeared: told of a group that has its first offset; whoever made this sets it when all is loaded.
    """

    def __init__(self, log: StateLog) -> None:
        self.appeared: Callable[[str], None] = lambda group_id: None
        self._log = log
        self._groups: dict[str, dict[str, _Topic]] = {}
        self._in_flight: dict[_Append, None] = {}
        self._transactions: dict[int, dict[OffsetKey, _Pending]] = {}
        self._pending: dict[str, dict[tuple[str, int], dict[int, _Pending]]] = {}
        self._order = 0

    # --- reading -----------------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """The groups that have offsets, or will have when a transaction is committed."""
        return list(dict.fromkeys((*self._groups, *self._pending)))

    def has(self, group_id: str) -> bool:
        """Whether a group has offsets, or might have soon."""
        return group_id in self._groups or self.is_changing(group_id)

    def is_changing(self, group_id: str) -> bool:
        """Whether offsets of a group are in the log that do not count yet."""
        return group_id in self._pending or any(append.group_id == group_id for append in self._in_flight)

    def may_have(self, group_id: str, topic: str) -> bool:
        """Whether a group may have offsets of a topic, now or soon."""
        return topic in self._groups.get(group_id, ()) or self.is_changing(group_id)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """What a group has committed for a partition, or None."""
        topics = self._groups.get(group_id)
        if topics is None:
            return None
        kept = topics.get(topic)
        if kept is None:
            return None
        value = kept.values.get(partition)
        return parse_offset_value(value) if value is not None else None

    def partitions_of(self, group_id: str) -> list[tuple[str, list[int]]]:
        """The topics and partitions that a group has offsets for, sorted."""
        topics = self._groups.get(group_id, {})
        return [(topic, sorted(kept.values)) for topic, kept in sorted(topics.items())]

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended commits an offset for this partition (KIP-447)."""
        pending = self._pending.get(group_id)
        return pending is not None and (topic, partition) in pending

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, group_id: str, values: OffsetValues, answer: Answer) -> None:
        """Append offsets of a group.

        :param values: at least one, of topics that exist.
        :param answer: as that of ``StateLog.append``.
        """
        append = _Append(self, group_id, values, answer)
        self._in_flight[append] = None
        self._log.append(self._records(group_id, values), append.committed, append.answered)

    def commit_in_transaction(
        self, group_id: str, values: OffsetValues, producer_id: int, producer_epoch: int, answer: Answer
    ) -> None:
        """Append offsets of a group as part of a producer's transaction.

        From now on these partitions are unstable until the transaction ends; where nothing could be appended they are
        not, since no end of a transaction would be told of here.

        :param answer: as that of ``StateLog.append_transactional``.
        """
        append = _TransactionalAppend(self, group_id, values, answer, producer_id)
        records = self._records(group_id, values)
        self._in_flight[append] = None
        if self._log.append_transactional(producer_id, producer_epoch, records, append.committed, append.answered):
            for topic, partitions in values:
                for partition, _ in partitions:
                    self._pending_of(producer_id, OffsetKey(group_id, topic, partition))

    def remove(self, records: Sequence[Pair], answer: Answer) -> None:
        """Append tombstones of offsets, as ``tombstones`` makes them."""
        self._log.append(records, lambda: self.forget(records), answer)

    def tombstones(self, group_id: str, wanted: Callable[[str, int], bool] | None = None) -> list[Pair]:
        """What removes a group's offsets from the log, also those that are in the log and do not count yet.

        :param wanted: of a topic and a partition, whether it is to be removed; None for all of them.
        """
        keys: dict[tuple[str, int], None] = {}
        for topic, partitions in self.partitions_of(group_id):
            keys.update(dict.fromkeys((topic, partition) for partition in partitions))
        for append in self._in_flight:
            if append.group_id == group_id:
                keys.update(
                    dict.fromkeys((topic, index) for topic, partitions in append.values for index, _ in partitions)
                )
        keys.update(dict.fromkeys(self._pending.get(group_id, ())))
        return [(build_offset_key(group_id, *key), None) for key in keys if wanted is None or wanted(*key)]

    def forget(self, records: Sequence[Pair]) -> None:
        """Tombstones are committed; those of other kinds of records are passed over."""
        for key, value in records:
            if value is None and key_version(key) in OFFSET_KEY_VERSIONS:
                self._remove(parse_offset_key(key))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction has ended, which need not have committed offsets here."""
        for key, pending in self._transactions.pop(producer_id, {}).items():
            self._settle(producer_id, key)
            if committed and pending.value is not None:
                self._supersede(key, pending.order)
                self._topic(key.group_id, key.topic).values[key.partition] = pending.value

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """A record of the log, while it is loaded.

        :raise ProtocolError: it is malformed, or its value's version is not known.
        """
        whose = parse_offset_key(key)
        if value is None:
            self._remove(whose)
            return
        parse_offset_value(value)  # for its errors: what is kept can be read at any time
        if batch.is_transactional:
            self._put_pending(batch.producer_id, whose, value)
        else:
            self._put(whose.group_id, [(whose.topic, [(whose.partition, value)])])

    def unload(self) -> None:
        """This broker leads no more: nothing is known any longer, and what is appended is answered by the log."""
        self._groups = {}
        self._transactions = {}
        self._pending = {}

    # --- memory ------------------------------------------------------------------------------------------------------

    def _records(self, group_id: str, values: OffsetValues) -> list[Pair]:
        topics = self._groups.get(group_id, {})
        records: list[Pair] = []
        for topic, partitions in values:
            kept = topics.get(topic)
            prefix = offset_key_prefix(group_id, topic) if kept is None else kept.key_prefix
            for partition, value in partitions:
                records.append((offset_key(prefix, partition), value))
        return records

    def _put(self, group_id: str, values: OffsetValues) -> None:
        for topic, partitions in values:
            self._topic(group_id, topic).values.update(partitions)
            if group_id in self._pending:
                for partition, _ in partitions:
                    self._supersede(OffsetKey(group_id, topic, partition), self._order)

    def _put_pending(self, producer_id: int, key: OffsetKey, value: bytes) -> None:
        pending = self._pending_of(producer_id, key)
        self._order += 1
        pending.order = self._order
        pending.value = value

    def _pending_of(self, producer_id: int, key: OffsetKey) -> _Pending:
        transaction = self._transactions.setdefault(producer_id, {})
        pending = transaction.get(key)
        if pending is None:
            pending = transaction[key] = _Pending()
            self._pending.setdefault(key.group_id, {}).setdefault(key[1:], {})[producer_id] = pending
        return pending

    def _settle(self, producer_id: int, key: OffsetKey) -> None:
        """A transaction has ended: as far as it goes, the partition is stable."""
        group = self._pending[key.group_id]
        partition = group[key[1:]]
        del partition[producer_id]
        if not partition:
            del group[key[1:]]
        if not group:
            del self._pending[key.group_id]

    def _supersede(self, key: OffsetKey, order: int) -> None:
        """What transactions wrote for a partition up to a place in the log does not count, however they end."""
        for pending in self._pending.get(key.group_id, {}).get(key[1:], {}).values():
            if is_overtaken(pending.order, order):
                pending.value = None

    def _remove(self, key: OffsetKey) -> None:
        self._supersede(key, self._order)
        topics = self._groups.get(key.group_id, {})
        kept = topics.get(key.topic)
        if kept is None:
            return
        kept.values.pop(key.partition, None)
        if not kept.values:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group_id]

    def _topic(self, group_id: str, topic: str) -> _Topic:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
            self.appeared(group_id)
        kept = topics.get(topic)
        if kept is None:
            kept = topics[topic] = _Topic(offset_key_prefix(group_id, topic))
        return kept


def is_overtaken(order: int, by_order: int) -> bool:
    """Whether what a transaction wrote lies before something else in the log."""
    return order <= by_order


class _Append:
    """Offsets of one request that are in the log, or about to be."""

    __slots__ = ("_answer", "_offsets", "group_id", "values")

    def __init__(self, offsets: Offsets, group_id: str, values: OffsetValues, answer: Answer) -> None:
        self._offsets = offsets
        self._answer = answer
        self.group_id = group_id
        self.values = values

    def committed(self) -> None:
        self._offsets._put(self.group_id, self.values)

    def answered(self, code: ErrorCode) -> None:
        del self._offsets._in_flight[self]
        self._answer(code)


class _TransactionalAppend(_Append):
    """The same within a transaction."""

    __slots__ = ("_producer_id",)

    def __init__(self, offsets: Offsets, group_id: str, values: OffsetValues, answer: Answer, producer_id: int) -> None:
        super().__init__(offsets, group_id, values, answer)
        self._producer_id = producer_id

    def committed(self) -> None:
        for topic, partitions in self.values:
            for partition, value in partitions:
                self._offsets._put_pending(self._producer_id, OffsetKey(self.group_id, topic, partition), value)
