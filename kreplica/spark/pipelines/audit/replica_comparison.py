"""Comparison of the replicas of one partition, batch by batch, below the high watermark.

Replicas hold the same bytes, so batches are compared by their headers, and verified by their checksums; records are
decoded only in compacted parts. Each damaged, missing or different batch is reported with its broker; if one replica
differs from the others, that replica is reported.

Each replica is compacted independently: in compacted parts, batches that some replicas lack are counted but are not a
difference, and batches that differ are compared by the records that they have in common.

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


class LogMoved(KreplicaError):
    """The log start offset moved past the requested range, for example by retention: the comparison must be
    repeated.
    """


class ReplicaGone(KreplicaError):
    """The replica does not exist any longer."""


class Batch(NamedTuple):
    """A batch as it was read.

    :param is_sound: True if the checksum matches.
    """

    header: BatchHeader
    data: memoryview
    is_sound: bool


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
    def has_to(self) -> int:
        """Offset up to which the replica must have all records, from the ISR or its own checkpoint; 0 if unknown."""

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """Leader epoch cache of the replica; empty if not available."""

    def first_offset(self) -> int:
        """Return the current log start offset.

        :raise ReplicaGone: the replica was deleted.
        """

    def cleaned_end(self) -> int:
        """Return the end of the part that may be compacted, as known by the replica; 0 if unknown."""

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Yield the batches whose last offset is in a range, ascending.

        :raise LogMoved: the log now starts after ``start``.
        """


class Span(NamedTuple):
    """Offset range of a partition to compare: the batches whose last offset is in it.

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
    :ivar blind_until: end of a range that is damaged or missing and was already reported.
    """

    def __init__(self, replica: Replica, span: Span, found: Comparison) -> None:
        self.replica = replica
        self.broker = replica.broker
        self.batches = self.size_bytes = 0
        self.end = span.start
        self.blind_until = 0
        self.header: BatchHeader | None = None
        self.data = memoryview(b"")
        self.is_sound = True
        self._epoch, self._epoch_until = -1, 0
        self._found = found
        self._items = replica.batches(span.start, span.end)
        self._take()

    def advance(self, end: int) -> None:
        """Advance to the next batch.

        :param end: end offset of the current batch.
        """
        assert self.header is not None
        self.batches += 1
        self.size_bytes += self.header[1] + 12
        self.end = end
        self._take()

    def _take(self) -> None:
        for item in self._items:
            if isinstance(item, Batch):
                self.header, self.data, self.is_sound = item
                return
            self.blind_until = max(self.blind_until, item.next_offset)
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
        at = bisect_right(entries, base, key=lambda entry: entry.start_offset)
        self._epoch = epoch
        self._epoch_until = entries[at].start_offset if at < len(entries) else OFFSET_END
        if at == 0:
            return
        said, start = entries[at - 1]
        # The checkpoint is written with delay: later epochs may be missing after its last entry.
        if said != epoch and not (at == len(entries) and epoch > said):
            text = f"leader-epoch-checkpoint has epoch {said} from offset {start}, the batch has {epoch}"
            self._found.add(self.broker, base, Kind.EPOCHS, text)


def compare(partition: TopicPartition, replicas: Sequence[Replica], span: Span) -> Comparison:
    """Compare the replicas of a partition.

    If two replicas contradict each other and there is no third, both are reported.

    :raise LogMoved: a log start offset moved; the comparison must be repeated.
    """
    start = max([span.start, *(replica.first_offset() for replica in replicas)])
    cleaned = max([span.compacted_end, *(replica.cleaned_end() for replica in replicas)])
    span = Span(min(start, span.end), span.end, cleaned)
    found = Comparison(*partition, span.start, span.end)
    if span.start == span.end:
        return found  # the whole span was deleted
    cursors = [_Cursor(replica, span, found) for replica in replicas]
    side_by_side = _SideBySide(cursors, span, found)
    lead, others = cursors[0], cursors[1:]
    while True:
        header = lead.header
        if header is not None and lead.is_sound and all(each.header == header and each.is_sound for each in others):
            end = header.next_offset
            for cursor in cursors:
                cursor.check_epoch(header)
                cursor.advance(end)
        elif not side_by_side.step():
            break
    furthest = max(cursor.end for cursor in cursors)
    for each in cursors:
        is_short = each.end < furthest
        found.coverages.append(Coverage(each.broker, span.start, each.end, each.batches, each.size_bytes, is_short))
    return found


class _SideBySide:
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
        having = [each for each in self._cursors if each.header is not None and each.header.base_offset == base]
        signatures = Counter(each.signature() for each in having if each.is_sound)
        most = max(signatures.values(), default=0)
        accepted = [signature for signature, count in signatures.items() if count == most]
        is_compacted = base < self._span.compacted_end
        end = max((signature.last_offset + 1 for signature in accepted), default=base + 1)
        if is_compacted and len(having) < len(self._cursors):
            self._found.compacted_count += 1
        for cursor in self._cursors:
            if cursor not in having:
                if not is_compacted:
                    self._absent(cursor, base, end)
            elif not cursor.is_sound:
                text = f"the checksum of {cursor.signature().size} bytes is wrong"
                self._found.add(cursor.broker, base, Kind.DAMAGED, text)
        if len(signatures) > 1:
            if is_compacted:
                self._compacted(base, [each for each in having if each.is_sound])
            else:
                self._unequal(base, [each for each in having if each.is_sound], accepted)
        elif len(having) == len(self._cursors):
            for cursor in having:
                if cursor.is_sound and cursor.header is not None:
                    cursor.check_epoch(cursor.header)
        for cursor in having:
            cursor.advance(cursor.signature().last_offset + 1 if cursor.is_sound else end)
        return True

    def _absent(self, cursor: _Cursor, base: int, end: int) -> None:
        if base < cursor.blind_until or (cursor.batches and base < cursor.end):
            return  # a different or unreadable batch there was reported before
        if cursor.header is not None:
            cursor.blind_until = cursor.header.base_offset
            text = f"no batch from {min(base, cursor.end)}; the next one starts at {cursor.blind_until}"
            self._found.add(cursor.broker, base, Kind.MISSING, text)
        elif end <= cursor.replica.has_to:
            cursor.blind_until = OFFSET_END
            text = f"the replica ends here, but must reach {cursor.replica.has_to}"
            self._found.add(cursor.broker, base, Kind.MISSING, text)

    def _unequal(
        self,
        base: int,
        sound: list[_Cursor],
        accepted: list[Signature],
        signature_of: Callable[[_Cursor], Signature] = _Cursor.signature,
    ) -> None:
        for cursor in sound:
            own = signature_of(cursor)
            if len(accepted) == 1 and own == accepted[0]:
                continue
            others = [signature for signature in accepted if signature != own]
            self._found.add(cursor.broker, base, Kind.DIFFERENT, _contrast(own, others))

    def _compacted(self, base: int, sound: list[_Cursor]) -> None:
        """Compare copies in a compacted part: compaction keeps a batch's offsets and epoch, and the last record of
        each key.
        """
        frames = Counter(_frame(each) for each in sound)
        if len(frames) > 1:
            most = max(frames.values())
            self._unequal(base, sound, [frame for frame, count in frames.items() if count == most], _frame)
            return
        self._found.compacted_count += 1
        records = [(cursor, _records(cursor)) for cursor in sound]
        for cursor, own_records in records:
            wrong = next((offset for offset, record in own_records.items() if not _is_usual(record, records)), None)
            if wrong is not None:
                text = f"the record at offset {wrong} differs from the other replicas"
                self._found.add(cursor.broker, base, Kind.DIFFERENT, text)


def _frame(cursor: _Cursor) -> Signature:
    """Return the part of the signature that compaction keeps."""
    return cursor.signature()._replace(size=0, crc=0)


def _records(cursor: _Cursor) -> dict[int, Record]:
    try:
        return {record.offset: record for record in iter_records(cursor.data)}
    except ProtocolError:
        return {}  # the leader wrote invalid bytes with a valid checksum: all replicas have them


def _is_usual(record: Record, records: list[tuple[_Cursor, dict[int, Record]]]) -> bool:
    """Return True if no other version of the record is in as many replicas or more."""
    versions = Counter(own[record.offset] for _, own in records if record.offset in own)
    return all(count < versions[record] for version, count in versions.items() if version != record)


def _contrast(own: Signature, others: list[Signature]) -> str:
    """Describe the fields that differ."""
    names = ("last offset", "size", "epoch", "crc")
    contrasts = []
    for name, mine, *theirs in zip(names, own, *others, strict=True):
        if any(each != mine for each in theirs):
            shown = [f"{each:08x}" if name == "crc" else str(each) for each in (mine, *theirs)]
            contrasts.append(f"{name} {shown[0]}, others have {' or '.join(dict.fromkeys(shown[1:]))}")
    return "; ".join(contrasts)
