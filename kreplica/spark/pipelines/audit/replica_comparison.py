"""Whether the replicas of one partition agree: their batches side by side, below the high watermark.

Replicas hold the same bytes, so batches are compared by their headers, and each one's bytes by its checksum; records
are opened only where compaction has been.  What is damaged, missing or different is named with its broker: the one
that is alone with what it has.

Cleaners compact each replica by itself: up to where one has been, batches that some replicas do not have any more are
counted and no difference, and of batches that differ the records that they have in common are compared.

Where the replicas are read from is nothing to this module: files (``audit_files``) or brokers (``audit_brokers``).
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
    """What was to be read is not there any more, as after retention: the replicas have to be looked at anew."""


class ReplicaGone(KreplicaError):
    """There is no such replica any more."""


class Batch(NamedTuple):
    """A batch as it was read.

    :param is_sound: its bytes are those that the checksum was made of.
    """

    header: BatchHeader
    data: memoryview
    is_sound: bool


class Gap(NamedTuple):
    """A stretch where no batch can be made out.

    :param base_offset: of the first batch that should be there; ``next_offset`` where batches begin again.
    """

    base_offset: int
    next_offset: int
    detail: str


class Replica(Protocol):
    """One replica of a partition, wherever it is."""

    @property
    def broker(self) -> int:
        """Whose it is."""

    @property
    def has_to(self) -> int:
        """Up to here it has to have everything: it is in sync, or noted so itself; 0 where neither is known."""

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """Its list of leader epochs; empty where that is not to be had."""

    def first_offset(self) -> int:
        """Where it begins now.

        :raise ReplicaGone: it is not there any more.
        """

    def cleaned_end(self) -> int:
        """Before it a cleaner may have been at work, as far as the replica itself says; 0 where it does not."""

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Those whose last offset lies in a range, growing.

        :raise LogMoved: the log does not begin before ``start`` any more.
        """


class Span(NamedTuple):
    """What of a partition is compared: batches whose last offset lies in it.

    :param compacted_end: before it cleaners may have been at work.
    """

    start: int
    end: int
    compacted_end: int = 0


class Signature(NamedTuple):
    """What two copies of a batch have in common."""

    last_offset: int
    size: int
    leader_epoch: int
    crc: int


class _Cursor:
    """A replica at its next batch.

    :ivar header: of that; None behind the last.
    :ivar end: behind the last batch that was looked at.
    :ivar blind_until: before it nothing can be made out, or is there, and that was told.
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
        """To the next batch.

        :param end: of the one that is left.
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
        """Of the batch."""
        header = self.header
        assert header is not None
        return Signature(header.last_offset, header.size, header.partition_leader_epoch, header.crc)

    def check_epoch(self, header: BatchHeader) -> None:
        """Note where the replica's list of epochs contradicts a batch that all agree on."""
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
        # The list is written now and then: its last entry may go on with later epochs that it does not have yet.
        if said != epoch and not (at == len(entries) and epoch > said):
            text = f"leader-epoch-checkpoint says epoch {said} from {start} on, the batch has {epoch}"
            self._found.add(self.broker, base, Kind.EPOCHS, text)


def compare(partition: TopicPartition, replicas: Sequence[Replica], span: Span) -> Comparison:
    """Compare what brokers have of a partition.

    Where two contradict each other and there is no third, both are named.

    :raise LogMoved: a log does not begin any more where it began: to be tried again.
    """
    start = max([span.start, *(replica.first_offset() for replica in replicas)])
    cleaned = max([span.compacted_end, *(replica.cleaned_end() for replica in replicas)])
    span = Span(min(start, span.end), span.end, cleaned)
    found = Comparison(*partition, span.start, span.end)
    if span.start == span.end:
        return found  # nothing of it is left
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
    """The rules for a place where replicas do not simply have the same batch."""

    def __init__(self, cursors: list[_Cursor], span: Span, found: Comparison) -> None:
        self._cursors = cursors
        self._span = span
        self._found = found

    def step(self) -> bool:
        """Compare the copies of the first batch that any has next, and let those go on; False where nobody has one."""
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
            return  # what it has there instead, or that it cannot be read, was told before
        if cursor.header is not None:
            cursor.blind_until = cursor.header.base_offset
            text = f"nothing from {min(base, cursor.end)} on; the next batch begins at {cursor.blind_until}"
            self._found.add(cursor.broker, base, Kind.MISSING, text)
        elif end <= cursor.replica.has_to:
            cursor.blind_until = OFFSET_END
            text = f"nothing from here on, and it has to have everything up to {cursor.replica.has_to}"
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
        """Cleaners leave a batch its offsets and its epoch, and of its records those that are the last of their key."""
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
                text = f"the record of offset {wrong} is another than in other replicas"
                self._found.add(cursor.broker, base, Kind.DIFFERENT, text)


def _frame(cursor: _Cursor) -> Signature:
    """What a cleaner leaves as it is."""
    return cursor.signature()._replace(size=0, crc=0)


def _records(cursor: _Cursor) -> dict[int, Record]:
    try:
        return {record.offset: record for record in iter_records(cursor.data)}
    except ProtocolError:
        return {}  # a checksum that is right of bytes that were made wrong: all replicas were given them


def _is_usual(record: Record, records: list[tuple[_Cursor, dict[int, Record]]]) -> bool:
    """Whether no other version of it is in as many replicas or more."""
    versions = Counter(own[record.offset] for _, own in records if record.offset in own)
    return all(count < versions[record] for version, count in versions.items() if version != record)


def _contrast(own: Signature, others: list[Signature]) -> str:
    """What differs, and nothing else."""
    names = ("last offset", "size", "epoch", "crc")
    told = []
    for name, mine, *theirs in zip(names, own, *others, strict=True):
        if any(each != mine for each in theirs):
            shown = [f"{each:08x}" if name == "crc" else str(each) for each in (mine, *theirs)]
            told.append(f"{name} {shown[0]}, others have {' or '.join(dict.fromkeys(shown[1:]))}")
    return "; ".join(told)
