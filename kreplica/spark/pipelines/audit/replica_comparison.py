"""Comparison of the replicas of one partition, batch by batch, below the high watermark.

Replicas are byte-identical. Therefore only batch headers are compared, and checksums are verified; records are decoded
only in compacted parts. Each damaged, missing or different batch is reported with its broker. If one replica differs
from the others, that replica is reported.

Each replica is compacted independently. Therefore, in compacted parts, batches that some replicas lack are counted but
are not differences, and batches that differ are compared by the records that they have in common.

The source of the replicas is abstract: files (``file_replicas``) or brokers (``broker_replicas``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from kreplica.errors import KreplicaError, ProtocolError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Kind
from kreplica.storage.formats.leader_epochs import EpochEntry
from kreplica.wire.batches import BatchHeader
from kreplica.wire.records import Record, iter_records

OFFSET_END = 1 << 63


class LogStartMoved(KreplicaError):
    """The log start offset moved into or past the requested range; the comparison must be repeated."""


class ReplicaDeleted(KreplicaError):
    """The replica was deleted."""


class Batch(NamedTuple):
    """A batch as read from a replica.

    :param crc_is_valid: True if the checksum matches.
    """

    header: BatchHeader
    data: memoryview
    crc_is_valid: bool


class Gap(NamedTuple):
    """A range without a valid batch.

    :param base_offset: offset of the first missing batch; ``next_offset`` is that of the next valid one.
    """

    base_offset: int
    next_offset: int
    detail: str


class Replica(Protocol):
    """One replica of a partition, independent of its source."""

    @property
    def broker(self) -> int:
        """ID of the broker that has the replica."""

    @property
    def required_end(self) -> int:
        """Offset up to which the replica must have all records (from the ISR or its checkpoint); 0 if unknown."""

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """Leader epoch cache of the replica; empty if not available."""

    def first_offset(self) -> int:
        """Return the current log start offset.

        :raise ReplicaDeleted: the replica was deleted.
        """

    def cleaned_end(self) -> int:
        """Return the end of the part that may be compacted, according to the replica; 0 if unknown."""

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Yield the batches whose last offset is in a range, in ascending order.

        :raise LogStartMoved: the log now starts after ``start``.
        """


class Span(NamedTuple):
    """Offset range of a partition to compare. A batch is in the range if its last offset is.

    :param compacted_end: batches before this offset may be compacted.
    """

    start: int
    end: int
    compacted_end: int = 0


class Signature(NamedTuple):
    """Header fields that two copies of a batch must share."""

    last_offset: int
    size: int
    leader_epoch: int
    crc: int


class _Cursor:
    """Cursor over the batches of one replica.

    :ivar header: header of the current batch; None at the end.
    :ivar end: offset after the last processed batch.
    :ivar skip_until: end of a damaged or missing range that was already reported.
    """

    def __init__(self, replica: Replica, span: Span, found: Comparison) -> None:
        self.replica = replica
        self.broker = replica.broker
        self.batches = self.size_bytes = 0
        self.end = span.start
        self.skip_until = 0
        self.header: BatchHeader | None = None
        self.data = memoryview(b"")
        self.crc_is_valid = True
        self._epoch, self._epoch_until = -1, 0
        self._found = found
        self._items = replica.batches(span.start, span.end)
        self._read_next()

    def advance(self, end: int) -> None:
        """Advance to the next batch.

        :param end: end offset of the current batch.
        """
        assert self.header is not None
        self.batches += 1
        self.size_bytes += self.header[1] + 12
        self.end = end
        self._read_next()

    def _read_next(self) -> None:
        for item in self._items:
            if isinstance(item, Batch):
                self.header, self.data, self.crc_is_valid = item
                return
            self.skip_until = max(self.skip_until, item.next_offset)
            self._found.add(self.broker, item.base_offset, Kind.DAMAGED, item.detail)
        self.header = None

    def signature(self) -> Signature:
        """Signature of the current batch."""
        header = self.header
        assert header is not None
        return Signature(header.last_offset, header.size, header.partition_leader_epoch, header.crc)

    def check_epoch(self, header: BatchHeader) -> None:
        """Record a difference if the replica's leader epoch cache contradicts a batch on which all replicas agree."""
        base, epoch = header[0], header[2]
        if base < self._epoch_until and epoch == self._epoch:
            return
        entries = self.replica.epochs
        index = bisect_right(entries, base, key=lambda entry: entry.start_offset)
        self._epoch = epoch
        self._epoch_until = entries[index].start_offset if index < len(entries) else OFFSET_END
        if index == 0:
            return
        cached_epoch, start = entries[index - 1]
        # The checkpoint is written with delay: later epochs may be missing after its last entry.
        if cached_epoch != epoch and not (index == len(entries) and epoch > cached_epoch):
            text = f"leader-epoch-checkpoint has epoch {cached_epoch} from offset {start}, the batch has {epoch}"
            self._found.add(self.broker, base, Kind.EPOCHS, text)


def compare(partition: TopicPartition, replicas: Sequence[Replica], span: Span) -> Comparison:
    """Compare the replicas of a partition.

    If there are only two replicas and they differ, both are reported.

    :raise LogStartMoved: a log start offset moved; the comparison must be repeated.
    """
    start = max([span.start, *(replica.first_offset() for replica in replicas)])
    cleaned = max([span.compacted_end, *(replica.cleaned_end() for replica in replicas)])
    span = Span(min(start, span.end), span.end, cleaned)
    found = Comparison(*partition, span.start, span.end)
    if span.start == span.end:
        return found  # the whole span was deleted
    cursors = [_Cursor(replica, span, found) for replica in replicas]
    mismatch_rules = _MismatchRules(cursors, span, found)
    first, others = cursors[0], cursors[1:]
    while True:
        header = first.header
        if (
            header is not None
            and first.crc_is_valid
            and all(each.header == header and each.crc_is_valid for each in others)
        ):
            end = header.next_offset
            for cursor in cursors:
                cursor.check_epoch(header)
                cursor.advance(end)
        elif not mismatch_rules.step():
            break
    furthest = max(cursor.end for cursor in cursors)
    for each in cursors:
        is_short = each.end < furthest
        found.coverages.append(Coverage(each.broker, span.start, each.end, each.batches, each.size_bytes, is_short))
    return found


class _MismatchRules:
    """Rules for offsets at which the replicas do not have identical batches."""

    def __init__(self, cursors: list[_Cursor], span: Span, found: Comparison) -> None:
        self._cursors = cursors
        self._span = span
        self._found = found

    def step(self) -> bool:
        """Compare the copies of the lowest next batch and advance their cursors; False at the end of all replicas."""
        bases = [each.header.base_offset for each in self._cursors if each.header is not None]
        if not bases:
            return False
        base = min(bases)
        present = [each for each in self._cursors if each.header is not None and each.header.base_offset == base]
        signatures = Counter(each.signature() for each in present if each.crc_is_valid)
        count_max = max(signatures.values(), default=0)
        accepted = [signature for signature, count in signatures.items() if count == count_max]
        is_compacted = base < self._span.compacted_end
        end = max((signature.last_offset + 1 for signature in accepted), default=base + 1)
        if is_compacted and len(present) < len(self._cursors):
            self._found.compacted_count += 1
        for cursor in self._cursors:
            if cursor not in present:
                if not is_compacted:
                    self._report_missing(cursor, base, end)
            elif not cursor.crc_is_valid:
                text = f"the checksum of {cursor.signature().size} bytes is wrong"
                self._found.add(cursor.broker, base, Kind.DAMAGED, text)
        if len(signatures) > 1:
            if is_compacted:
                self._compare_compacted(base, [each for each in present if each.crc_is_valid])
            else:
                self._report_different(base, [each for each in present if each.crc_is_valid], accepted)
        elif len(present) == len(self._cursors):
            for cursor in present:
                if cursor.crc_is_valid and cursor.header is not None:
                    cursor.check_epoch(cursor.header)
        for cursor in present:
            cursor.advance(cursor.signature().last_offset + 1 if cursor.crc_is_valid else end)
        return True

    def _report_missing(self, cursor: _Cursor, base: int, end: int) -> None:
        if base < cursor.skip_until or (cursor.batches and base < cursor.end):
            return  # a different or unreadable batch at this offset was already reported
        if cursor.header is not None:
            cursor.skip_until = cursor.header.base_offset
            text = f"no batch from {min(base, cursor.end)}; the next one starts at {cursor.skip_until}"
            self._found.add(cursor.broker, base, Kind.MISSING, text)
        elif end <= cursor.replica.required_end:
            cursor.skip_until = OFFSET_END
            text = f"the replica ends here, but must reach {cursor.replica.required_end}"
            self._found.add(cursor.broker, base, Kind.MISSING, text)

    def _report_different(
        self,
        base: int,
        valid: list[_Cursor],
        accepted: list[Signature],
        signature_of: Callable[[_Cursor], Signature] = _Cursor.signature,
    ) -> None:
        for cursor in valid:
            own = signature_of(cursor)
            if len(accepted) == 1 and own == accepted[0]:
                continue
            others = [signature for signature in accepted if signature != own]
            self._found.add(cursor.broker, base, Kind.DIFFERENT, _describe_difference(own, others))

    def _compare_compacted(self, base: int, valid: list[_Cursor]) -> None:
        """Compare copies in a compacted part: compaction keeps a batch's offsets and epoch, and the last record of
        each key.
        """
        compacted_signatures = Counter(_compacted_signature(each) for each in valid)
        if len(compacted_signatures) > 1:
            count_max = max(compacted_signatures.values())
            accepted = [signature for signature, count in compacted_signatures.items() if count == count_max]
            self._report_different(base, valid, accepted, _compacted_signature)
            return
        self._found.compacted_count += 1
        records = [(cursor, _records(cursor)) for cursor in valid]
        for cursor, own_records in records:
            differing_offset = next(
                (offset for offset, record in own_records.items() if not _is_most_common(record, records)), None
            )
            if differing_offset is not None:
                text = f"the record at offset {differing_offset} differs from that of the other replicas"
                self._found.add(cursor.broker, base, Kind.DIFFERENT, text)


def _compacted_signature(cursor: _Cursor) -> Signature:
    """Return the part of the signature that compaction does not change."""
    return cursor.signature()._replace(size=0, crc=0)


def _records(cursor: _Cursor) -> dict[int, Record]:
    try:
        return {record.offset: record for record in iter_records(cursor.data)}
    except ProtocolError:
        return {}  # a producer sent invalid records with a valid checksum: all replicas have them


def _is_most_common(record: Record, records: list[tuple[_Cursor, dict[int, Record]]]) -> bool:
    """Return True if every other version of the record is in fewer replicas."""
    versions = Counter(own[record.offset] for _, own in records if record.offset in own)
    return all(count < versions[record] for version, count in versions.items() if version != record)


def _describe_difference(own: Signature, others: list[Signature]) -> str:
    """Describe the fields that differ."""
    names = ("last offset", "size", "epoch", "crc")
    differences = []
    for name, mine, *theirs in zip(names, own, *others, strict=True):
        if any(each != mine for each in theirs):
            shown = [f"{each:08x}" if name == "crc" else str(each) for each in (mine, *theirs)]
            differences.append(f"{name} {shown[0]}, others have {' or '.join(dict.fromkeys(shown[1:]))}")
    return "; ".join(differences)
