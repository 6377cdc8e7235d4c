"""What clients produce, before it is appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zope.interface import Interface

from kreplica.interfaces.authorization import Principal
from kreplica.interfaces.records import LogRecord
from kreplica.model import TopicPartition


class ProducedBatch(Protocol):
    """What a client sent for one partition, and the interceptors before this one left of it.

    :ivar is_transactional: it belongs to a transaction, which may be aborted.
    :ivar is_compacted: its topic is; notes would not last there.
    :ivar now_ms: the wall clock, milliseconds since 1970: the time of the append.
    """

    topic_partition: TopicPartition
    principal: Principal
    is_transactional: bool
    is_compacted: bool
    now_ms: int

    @property
    def records(self) -> Sequence[LogRecord]:
        """Its records, opened (and decompressed) when first asked for; ``offset`` is each one's index."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing of the batch is appended; its producer gets INVALID_RECORD.

    :param records: by index in the batch: what is wrong with that record.
    """

    message: str
    records: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instead:
    """Append this instead.

    :param records: those that stay, perhaps changed; ``offset`` is their index in the batch, and they are in its order.
        The offsets of the others stay empty, as compaction leaves them.
    :param note: kept in the log right before them, in one piece with them or not at all; replicated, and not seen by
        consumers.  The interceptor finds it by ``LedPartitions.read``, on whichever broker leads then.  Compacted
        topics and transactions have none: there the batch is refused.
    """

    records: Sequence[LogRecord]
    note: bytes | None = None


class IProduceInterceptor(Interface):
    """Sees what clients produce before it is appended (``kreplica.produce.interceptors``, one after the other)."""

    def intercept(batch: ProducedBatch) -> Refuse | Instead | None:
        """What is to become of one partition's batch; None: append it as it is.

        Called by the partition's leader, for batches of clients alone: not for those of coordinators, and not by
        followers.  A producer's retry is seen again, and then recognised by the log.
        Where it raises: the batch is refused with UNKNOWN_SERVER_ERROR.
        """

    def appended(batch: ProducedBatch, note_offset: int) -> None:
        """The note of an ``Instead`` is in the log, at this offset; not called where there was none, or for a retry.

        Where it raises: nothing is taken back.
        """
