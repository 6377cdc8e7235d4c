"""Whether the replicas of one partition agree: their batches side by side, below the high watermark.

Replicas hold the same bytes, so batches are compared by their headers, and each one's bytes by its checksum; no record
is opened.  What is damaged, missing or different is named with its broker: the one that is alone with what it has.
Cleaners compact each replica by itself: of a compacted topic, batches that some replicas do not have any more are
counted and no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kreplica.model import TopicPartition
from kreplica.spark.segment_files import ReplicaFiles
from kreplica.storage.scanning import scan_batches
from kreplica.wire.batches import BatchHeader, verify_crc

DIFFERENCES_MAX = 1000
"""Of one partition, that are named; all are counted."""


class Kind(Enum):
    """What is wrong with a replica at one place."""

    DAMAGED = "damaged"
    """The bytes are not those that the checksum was made of."""

    MISSING = "missing"
    """Others have a batch there."""

    DIFFERENT = "different"
    """Others have another batch there."""


class Signature(NamedTuple):
    """What two copies of a batch have in common."""

    last_offset: int
    size: int
    leader_epoch: int
    crc: int


class Difference(NamedTuple):
    """A place where a replica does not agree with the others.

    :param detail: what it has, and what they have.
    """

    topic: str
    partition: int
    base_offset: int
    broker: int
    kind: Kind
    detail: str


class Coverage(NamedTuple):
    """How much of one replica was looked at.

    :param start: from its first offset on; ``end`` behind the last one that was compared.
    :param is_short: it ends before the high watermark: it has to catch up, and that is no difference.
    """

    broker: int
    start: int
    end: int
    batches: int
    size_bytes: int
    is_short: bool


@dataclass(slots=True)
class Comparison:
    """Of one partition.

    :ivar high_watermark: up to where replicas have to agree.
    :ivar difference_count: of all, also of those that are not in ``differences``.
    :ivar compacted_count: batches that not all replicas of a compacted topic have any more.
    """

    partition: TopicPartition
    high_watermark: int
    coverages: list[Coverage] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    compacted_count: int = 0


class _Replica:
    """One replica's batches, one after the other, from the first common offset up to the high watermark."""

    def __init__(self, broker: int, files: ReplicaFiles, start: int, end: int) -> None:
        self.broker = broker
        self.files = files
        self.batches = self.size_bytes = 0
        self.end = start
        self.header: BatchHeader | None = None
        self.is_sound = True
        self._all = _batches(files, start, end)

    def advance(self) -> None:
        """To the next batch; ``header`` is None behind the last."""
        self.header, self.is_sound = next(self._all, (None, True))
        if self.header is not None:
            self.batches += 1
            self.size_bytes += self.header.size
            self.end = self.header.next_offset

    def signature(self) -> Signature:
        """Of the batch."""
        header = self.header
        assert header is not None
        return Signature(header.last_offset, header.size, header.partition_leader_epoch, header.crc)


def _batches(files: ReplicaFiles, start: int, end: int) -> Iterator[tuple[BatchHeader | None, bool]]:
    for base in files.bases_from(start):
        if base >= end:
            return
        with closing(files.open(base)) as file:
            for _, header, batch in scan_batches(file, files.position(base, start), file.size()):
                if header.base_offset >= end:
                    return
                if header.last_offset >= start:
                    yield header, verify_crc(batch, header)


def compare(replicas: Mapping[int, ReplicaFiles], *, is_compacted: bool = False) -> Comparison:
    """Compare what brokers have of a partition.

    :param replicas: by broker.
    """
    partition = next(iter(replicas.values())).partition
    start = max(files.start for files in replicas.values())
    high_watermark = max(files.high_watermark or 0 for files in replicas.values())
    found = Comparison(partition, high_watermark)
    running = [_Replica(broker, files, start, high_watermark) for broker, files in sorted(replicas.items())]
    for replica in running:
        replica.advance()
    while True:
        bases = [replica.header.base_offset for replica in running if replica.header is not None]
        if not bases:
            break
        _compare_at(min(bases), running, found, is_compacted)
    for replica in running:
        begins = max(start, replica.files.start)
        is_short = replica.end < high_watermark and not is_compacted
        found.coverages.append(
            Coverage(replica.broker, begins, replica.end, replica.batches, replica.size_bytes, is_short)
        )
    return found


def _compare_at(base: int, running: list[_Replica], found: Comparison, is_compacted: bool) -> None:
    """Compare the copies of the batch that begins there, and let those who have one go on."""
    having = [each for each in running if each.header is not None and each.header.base_offset == base]
    signatures = Counter(each.signature() for each in having if each.is_sound)
    most = max(signatures.values(), default=0)
    accepted = [signature for signature, count in signatures.items() if count == most]
    for replica in running:
        header = replica.header
        if replica not in having:
            # Who has nothing behind it is short of it, and does not miss it.
            if header is not None and header.base_offset > base:
                _missing(replica, base, found, is_compacted)
        elif not replica.is_sound:
            _add(found, base, replica, Kind.DAMAGED, f"the checksum of {replica.signature().size} bytes is wrong")
        elif len(accepted) > 1 or replica.signature() != accepted[0]:
            others = ", ".join(str(tuple(each)) for each in signatures if each != replica.signature())
            text = f"(last offset, size, epoch, crc) {tuple(replica.signature())}, others have {others}"
            _add(found, base, replica, Kind.DIFFERENT, text)
    for replica in having:
        replica.advance()


def _missing(replica: _Replica, base: int, found: Comparison, is_compacted: bool) -> None:
    assert replica.header is not None
    if is_compacted:
        found.compacted_count += 1
    else:
        _add(found, base, replica, Kind.MISSING, f"the next batch here begins at {replica.header.base_offset}")


def _add(found: Comparison, base: int, replica: _Replica, kind: Kind, detail: str) -> None:
    found.difference_count += 1
    if len(found.differences) < DIFFERENCES_MAX:
        topic, partition = found.partition
        found.differences.append(Difference(topic, partition, base, replica.broker, kind, detail))
