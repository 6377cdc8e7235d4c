"""How far each partition was read, and what hinders it: values that all parts of a consumer share."""

from __future__ import annotations

from operator import length_hint
from uuid import UUID

from kreplica.client.consumer.fetch_buffer import Stock
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import ClientError
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import NO_EPOCH, ZERO_UUID, TopicPartition

NO_BROKER = -1


class Handed:
    """A batch that is handed out record by record.

    Whoever reads takes records from ``rest``, and that is all it costs: how many those were, the iterator knows.
    """

    __slots__ = ("accepted", "batch", "rest")

    def __init__(self, batch: ConsumedBatch) -> None:
        self.batch = batch
        self.rest = iter(batch.records)
        self.accepted = 0

    @property
    def taken(self) -> int:
        """How many records were taken."""
        return len(self.batch.records) - length_hint(self.rest)

    @property
    def position(self) -> int:
        """The offset of the next one, or right behind the batch."""
        taken, records = self.taken, self.batch.records
        return records[taken].offset if taken < len(records) else self.batch.next_offset

    @property
    def done(self) -> int:
        """The offset of the one that was taken last, for it is not gone past; unless all taken ones are accepted."""
        taken = self.taken
        return self.position if taken == self.accepted else self.batch.records[taken - 1].offset

    def stop(self) -> ConsumedBatch | None:
        """Let no more be taken, and give what is left."""
        batch, taken = self.batch, self.taken
        left = batch.records[taken:]
        del batch.records[taken:]
        return ConsumedBatch(batch.partition, left, batch.next_offset, batch.leader_epoch) if left else None


class Reading:
    """One partition that is read; it ends with the assignment, and a new assignment begins another one.

    :ivar epoch: of the leader that took the record before the position (KIP-320).
    :ivar fetch_offset: the next one to ask for: right behind what is in stock.
    :ivar wanted_time: where to begin, as ListOffsets has it, while the position is not known; None: where the group
        committed.
    :ivar checked_epoch: the leader epoch for which the position is known to be right.
    :ivar preferred: the replica to read from, where the leader named one, until ``preferred_until_s`` (KIP-392).
    :ivar is_paused: by the application; ``is_held``: while it is given up; ``is_busy``: while a handler
        works on it.
    :ivar is_asked: a fetch is under way.
    :ivar is_settling: its position is being found or checked.
    :ivar is_over: it is assigned no more.
    :ivar turn: goes up whenever it begins elsewhere.
    :ivar retry_at_s: not before, after ``failures`` in a row, the first at ``failing_since_s``.
    :ivar error: why it cannot go on, until it is told to begin elsewhere.
    """

    def __init__(self, key: TopicPartition, wanted_time: int | None = None) -> None:
        self.key = key
        self.stock = Stock()
        self.handed: Handed | None = None
        self.topic_id: UUID = ZERO_UUID
        self.is_paused = self.is_held = self.is_busy = self.is_asked = self.is_settling = self.is_over = False
        self.preferred, self.preferred_until_s = NO_BROKER, 0.0
        self._position: int | None = None
        self.turn = 0
        self.begin_anew(wanted_time)

    def begin_anew(self, wanted_time: int | None) -> None:
        """Begin elsewhere, where that has yet to be found out."""
        self._forget()
        self._position, self.wanted_time = None, wanted_time
        self._done = self.fetch_offset = -1
        self.epoch = self.done_epoch = self.checked_epoch = NO_EPOCH

    def begin_at(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Begin at an offset.

        :param epoch: of the leader that took what is before it, where that is known: then it is checked.
        """
        self._forget()
        self._position = self._done = self.fetch_offset = offset
        self.epoch = self.done_epoch = epoch
        self.checked_epoch = NO_EPOCH

    def _forget(self) -> None:
        self.turn += 1
        if self.handed is not None:
            self.handed.stop()
            self.handed = None
        self.stock.clear()
        self.error: ClientError | None = None
        self.succeeded()

    def fetch_again(self) -> None:
        """Forget what is in stock: it is asked for again."""
        if self._position is not None:
            self.put_back()
            self.stock.clear()
            self.fetch_offset = self._position

    def succeeded(self) -> None:
        """Nothing hinders it."""
        self.failures, self.failing_since_s, self.retry_at_s = 0, 0.0, 0.0

    # --- positions ---

    @property
    def position(self) -> int | None:
        """The next offset to hand out; None: not known yet."""
        return self._position if self.handed is None else self.handed.position

    @property
    def done(self) -> int:
        """All before it was handed out and gone past, or holds nothing to hand out; -1: not known yet."""
        return self._done if self.handed is None else self.handed.done

    @property
    def committable(self) -> CommittedOffset | None:
        """What may be committed, if anything is known."""
        return None if self.done < 0 else CommittedOffset(self.done, self.done_epoch)

    @property
    def is_outstanding(self) -> bool:
        """Whether something was handed out that was not gone past."""
        position = self.position
        return position is not None and self.done < position

    def move(self, position: int, epoch: int) -> None:
        """A batch was handed out, as a whole."""
        self._position, self.epoch = position, epoch

    def skip(self, position: int) -> None:
        """There is nothing to hand out before a position."""
        if not self.is_outstanding:
            self._done = position
        self._position = position

    def lend(self, batch: ConsumedBatch) -> Handed:
        """Hand a batch out record by record."""
        self.handed = Handed(batch)
        self.epoch = batch.leader_epoch
        return self.handed

    def put_back(self) -> None:
        """Hand out no more of what is handed out record by record: what is left goes back into stock."""
        handed, self.handed = self.handed, None
        if handed is not None:
            self._done, self._position = handed.done, handed.position
            left = handed.stop()
            if left is not None:
                self.stock.put_back(left)

    def gone_past(self) -> None:
        """All that was handed out is done with."""
        self.done_epoch = self.epoch
        if self.handed is None:
            if self._position is not None:
                self._done = self._position
            return
        self.handed.accepted = self.handed.taken
        if not length_hint(self.handed.rest):
            self._done = self._position = self.handed.position
            self.handed = None

    def give_back(self, batch: ConsumedBatch) -> None:
        """Some of what was handed out is to be handed out again."""
        self._position = self._done = batch.records[0].offset
        self.stock.put_back(batch)

    def gone_past_to(self, offset: int, epoch: int) -> None:
        """What was handed out before an offset is done with."""
        self._done, self.done_epoch = offset, epoch
