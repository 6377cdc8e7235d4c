"""Committed offsets of the groups of one partition of ``__consumer_offsets``, and pending changes to them.

Each offset is stored as an encoded record value (about 60 bytes), because a broker may have millions of offsets and
decodes few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.offset_memory import OFFSET_BYTES, PENDING_BYTES, OffsetAccounts, OffsetMemory
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
from kreplica.groups.transactional_offsets import TransactionalOffsets
from kreplica.runtime.slices import Steps
from kreplica.wire.batch_building import BatchBuilder

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, ProducerEpoch, StateLog
    from kreplica.wire.batches import BatchHeader

Respond = Callable[[ErrorCode], None]

STEP_OFFSETS = 32
"""Number of offsets that one step of a large commit reads or encodes; each offset takes 3 to 8 us."""

OffsetValues = Sequence[tuple[str, Sequence[tuple[int, bytes]]]]
"""Topics with partitions and their encoded record values."""


class _Topic:
    """Offsets of one group in one topic.

    :ivar values: encoded values by partition.
    """

    __slots__ = ("key_prefix", "values")

    def __init__(self, key_prefix: bytes) -> None:
        self.key_prefix = key_prefix
        self.values: dict[int, bytes] = {}


class Offsets:
    """Offsets of the shard that owns this object. Appended offsets take effect in log order when they are committed.

    Offsets of a transaction take effect at its end, but according to their own position in the log: a later commit
    outside the transaction takes precedence.

    :param memory: memory totals that all shards of a broker share; None creates separate totals.
    :ivar on_first_offset: called with a group's id when its first offset takes effect; set by the owner after loading.
    """

    def __init__(self, log: StateLog, memory: OffsetMemory | None = None) -> None:
        self._accounts = OffsetAccounts(memory or OffsetMemory())
        self.on_first_offset: Callable[[str], None] = lambda group_id: None
        self._log = log
        self._groups: dict[str, dict[str, _Topic]] = {}
        self._in_flight: dict[_Append, None] = {}
        self._transactional = TransactionalOffsets(self._accounts)

    # --- reading -----------------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """Return the ids of the groups with offsets, including offsets of open transactions."""
        return list(dict.fromkeys((*self._groups, *self._transactional.group_ids())))

    def has(self, group_id: str) -> bool:
        """Return True if a group has offsets or pending commits."""
        return group_id in self._groups or self.is_changing(group_id)

    def is_changing(self, group_id: str) -> bool:
        """Return True if a group has commits that have not taken effect yet."""
        return self._transactional.has(group_id) or any(append.group_id == group_id for append in self._in_flight)

    def may_have(self, group_id: str, topic: str) -> bool:
        """Return True if a group has offsets in a topic or any pending commits."""
        return topic in self._groups.get(group_id, ()) or self.is_changing(group_id)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition, or None."""
        topics = self._groups.get(group_id)
        if topics is None:
            return None
        topic_offsets = topics.get(topic)
        if topic_offsets is None:
            return None
        value = topic_offsets.values.get(partition)
        return parse_offset_value(value) if value is not None else None

    def partitions_of(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the topics and partitions in which a group has committed offsets, sorted."""
        topics = self._groups.get(group_id, {})
        return [(topic, sorted(topic_offsets.values)) for topic, topic_offsets in sorted(topics.items())]

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return True if an open transaction has an offset of this partition (KIP-447)."""
        return self._transactional.is_unstable(group_id, topic, partition)

    # --- writing -----------------------------------------------------------------------------------------------------

    def prepare(
        self,
        group_id: str,
        values: OffsetValues,
        now_ms: int,
        producer: ProducerEpoch | None = None,
    ) -> Steps[BatchBuilder]:
        """Build the batch of a large commit in slices, yielding to the reactor in between.

        :param producer: the producer, if the commit belongs to a transaction.
        :return: a batch for ``commit`` or ``commit_in_transaction``.
        :raise KafkaError: MESSAGE_TOO_LARGE.
        """
        batch, size_max = self._log.new_batch(producer), self._log.batch_size_max
        for topic, partitions in values:
            prefix = offset_key_prefix(group_id, topic)
            for partition, value in partitions:
                batch.append(now_ms, offset_key(prefix, partition), value)
                if batch.record_count % STEP_OFFSETS == 0:
                    if batch.size > size_max:
                        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the committed offsets exceed {size_max} bytes")
                    yield
        return batch

    def commit(
        self,
        group_id: str,
        values: OffsetValues,
        respond: Respond,
        prepared: BatchBuilder | None = None,
        address: str = "",
    ) -> None:
        """Append offsets of a group.

        :param values: at least one, of existing topics.
        :param respond: see ``StateLog.append``.
        :param prepared: the result of ``prepare`` for the same offsets.
        :param address: address of the client, which is charged if the group has no offsets yet.
        :raise KafkaError: INVALID_COMMIT_OFFSET_SIZE if a memory limit would be exceeded; nothing was appended.
        """
        growth = self._growth(group_id, values)
        self._accounts.check(group_id, address, growth, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        append = _Append(self, group_id, values, respond)
        self._start_append(append, address, growth)
        if prepared is not None:
            self._log.append_batch(prepared, append.committed, append.completed)
        else:
            self._log.append(self._records(group_id, values), append.committed, append.completed)

    def commit_in_transaction(
        self,
        group_id: str,
        values: OffsetValues,
        producer: ProducerEpoch,
        respond: Respond,
        prepared: BatchBuilder | None = None,
        address: str = "",
    ) -> None:
        """Append offsets of a group as part of a transaction.

        The partitions are unstable until the transaction ends. If the append is rejected, they are not marked as
        unstable, because no marker would follow.

        :param respond: see ``StateLog.append_batch``.
        :param prepared: the result of ``prepare`` for the same offsets and producer.
        :param address: address of the client, which is charged if the group has no offsets yet.
        :raise KafkaError: COORDINATOR_NOT_AVAILABLE if a memory limit would be exceeded; nothing was appended.  Clients
            retry, and succeed when other transactions have ended.
        """
        growth = self._growth(group_id, values)
        pending = sum(PENDING_BYTES + len(value) for _, partitions in values for _, value in partitions)
        rejection = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._accounts.check(group_id, address, growth, rejection)
        self._accounts.check(group_id, address, pending, rejection, is_pending=True)
        append = _TransactionalAppend(self, group_id, values, respond, producer[0])
        batch = prepared or self._log.new_batch(producer)
        records = () if prepared else self._records(group_id, values)
        self._start_append(append, address, growth)
        if self._log.append_batch(batch, append.committed, append.completed, records):
            for topic, partitions in values:
                for partition, _ in partitions:
                    self._transactional.register(producer[0], OffsetKey(group_id, topic, partition))

    def remove(self, records: Sequence[Pair], respond: Respond) -> None:
        """Append tombstones that were returned by ``tombstones``."""
        self._log.append(records, lambda: self.forget(records), respond)

    def tombstones(self, group_id: str, is_selected: Callable[[str, int], bool] | None = None) -> list[Pair]:
        """Return tombstones for a group's offsets, including those of pending commits.

        :param is_selected: predicate on topic and partition; None selects all.
        """
        keys: dict[tuple[str, int], None] = {}
        for topic, partitions in self.partitions_of(group_id):
            keys.update(dict.fromkeys((topic, partition) for partition in partitions))
        for append in self._in_flight:
            if append.group_id == group_id:
                keys.update(
                    dict.fromkeys((topic, index) for topic, partitions in append.values for index, _ in partitions)
                )
        keys.update(dict.fromkeys(self._transactional.partitions_of(group_id)))
        return [(build_offset_key(group_id, *key), None) for key in keys if is_selected is None or is_selected(*key)]

    def forget(self, records: Sequence[Pair]) -> None:
        """Apply committed tombstones; records of other types are ignored."""
        for key, value in records:
            if value is None and key_version(key) in OFFSET_KEY_VERSIONS:
                self._remove(parse_offset_key(key))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the end of a transaction, which may have no offsets in this shard."""
        for key, value in self._transactional.end(producer_id, committed):
            self._put_values(key.group_id, key.topic, [(key.partition, value)])

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """Apply a record while the log is being loaded.

        :raise ProtocolError: the record is malformed, or the value's version is unknown.
        """
        offset_key_fields = parse_offset_key(key)
        if value is None:
            self._remove(offset_key_fields)
            return
        parse_offset_value(value)  # raises an error if malformed, so that stored values can always be decoded
        if batch.is_transactional:
            self._transactional.put(batch.producer_id, offset_key_fields, value)
        else:
            group_id, topic, partition = offset_key_fields
            self._put(group_id, [(topic, [(partition, value)])])

    def unload(self) -> None:
        """Discard all offsets; the log responds to pending appends."""
        self._accounts.close()
        self._groups = {}
        self._transactional.clear()

    # --- memory ------------------------------------------------------------------------------------------------------

    def _records(self, group_id: str, values: OffsetValues) -> list[Pair]:
        topics = self._groups.get(group_id, {})
        records: list[Pair] = []
        for topic, partitions in values:
            topic_offsets = topics.get(topic)
            prefix = offset_key_prefix(group_id, topic) if topic_offsets is None else topic_offsets.key_prefix
            for partition, value in partitions:
                records.append((offset_key(prefix, partition), value))
        return records

    def _growth(self, group_id: str, values: OffsetValues) -> int:
        """Return the number of bytes by which a group's offsets would grow."""
        topics = self._groups.get(group_id, {})
        growth = 0
        for topic, partitions in values:
            topic_offsets = topics.get(topic)
            before = topic_offsets.values if topic_offsets is not None else {}
            for partition, value in partitions:
                old = before.get(partition)
                growth += OFFSET_BYTES + len(value) if old is None else len(value) - len(old)
        return growth

    def _start_append(self, append: _Append, address: str, growth: int) -> None:
        """Register an append and charge for it until it succeeds or fails."""
        append.reserved = max(growth, 0)
        self._accounts.reserve(append.group_id, address, append.reserved)
        self._in_flight[append] = None

    def _put_values(self, group_id: str, topic: str, partitions: Iterable[tuple[int, bytes]]) -> None:
        stored = self._topic(group_id, topic).values
        growth = 0
        for partition, value in partitions:
            old = stored.get(partition)
            growth += OFFSET_BYTES + len(value) if old is None else len(value) - len(old)
            stored[partition] = value
        self._accounts.add(group_id, growth)

    def _put(self, group_id: str, values: OffsetValues) -> None:
        for topic, partitions in values:
            self._put_values(group_id, topic, partitions)
            if self._transactional.has(group_id):
                for partition, _ in partitions:
                    self._transactional.supersede(OffsetKey(group_id, topic, partition))

    def _remove(self, key: OffsetKey) -> None:
        self._transactional.supersede(key)
        topics = self._groups.get(key.group_id, {})
        topic_offsets = topics.get(key.topic)
        if topic_offsets is None:
            return
        value = topic_offsets.values.pop(key.partition, None)
        if value is not None:
            self._accounts.add(key.group_id, -OFFSET_BYTES - len(value))
        if not topic_offsets.values:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group_id]

    def _topic(self, group_id: str, topic: str) -> _Topic:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
            self.on_first_offset(group_id)
        topic_offsets = topics.get(topic)
        if topic_offsets is None:
            topic_offsets = topics[topic] = _Topic(offset_key_prefix(group_id, topic))
        return topic_offsets


class _Append:
    """Offsets of one request that are being appended."""

    __slots__ = ("_offsets", "_respond", "group_id", "reserved", "values")

    def __init__(self, offsets: Offsets, group_id: str, values: OffsetValues, respond: Respond) -> None:
        self.reserved = 0
        self._offsets = offsets
        self._respond = respond
        self.group_id = group_id
        self.values = values

    def committed(self) -> None:
        self._offsets._put(self.group_id, self.values)

    def completed(self, code: ErrorCode) -> None:
        del self._offsets._in_flight[self]
        self._offsets._accounts.add(self.group_id, -self.reserved)
        self._respond(code)


class _TransactionalAppend(_Append):
    """Offsets of one request that are being appended as part of a transaction."""

    __slots__ = ("_producer_id",)

    def __init__(
        self, offsets: Offsets, group_id: str, values: OffsetValues, respond: Respond, producer_id: int
    ) -> None:
        super().__init__(offsets, group_id, values, respond)
        self._producer_id = producer_id

    def committed(self) -> None:
        for topic, partitions in self.values:
            for partition, value in partitions:
                self._offsets._transactional.put(self._producer_id, OffsetKey(self.group_id, topic, partition), value)
