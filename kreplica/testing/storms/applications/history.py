"""What applications sent, were told and were given, and where that contradicts itself at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kreplica.client.producer import Written
from kreplica.model import TopicPartition


@dataclass(slots=True)
class Sent:
    """One record of one producer.

    :param number: in the order of sending, in this incarnation of the producer.
    :param written: where it is, once it was acknowledged.
    :param error: why it is not, once that is certain to the producer; its name alone.
    :param is_lost: whether it is certain that it will never be in the log.
    """

    value: bytes
    producer: str
    number: int
    key: bytes | None
    written: Written | None = None
    error: str = ""
    is_lost: bool = False

    @property
    def has_outcome(self) -> bool:
        return self.written is not None or bool(self.error)


MayOverlap = Callable[[str, str], bool]
"""Of who had a partition, and who has it now."""


@dataclass(slots=True)
class Share:
    """What one member read of one partition, from when it was given to it until it was taken away.

    :param number: in the order in which shares were given.
    :ivar begin: the first offset that it was given; -1 before.
    :ivar next_offset: the one to come; -1 before.
    :ivar is_held: whether it may read it still.
    """

    member: str
    partition: TopicPartition
    number: int
    begin: int = -1
    next_offset: int = -1
    is_held: bool = True


class GroupTellings:
    """Filled by the members of one group, all of whose records have consecutive offsets.

    :param clock: seconds.
    :param may_overlap: whether a member may not know yet that what it had is another one's now.
    :ivar processed_ends: by partition, the first offset that nobody has processed to its end.
    :ivar processed_count: of records, with each time that one was processed.
    """

    def __init__(self, name: str, clock: Callable[[], float], may_overlap: MayOverlap = lambda had, has: False) -> None:
        self.name = name
        self.processed_count = 0
        self.processed_ends: dict[TopicPartition, int] = {}
        self.contradictions: list[str] = []
        self.held: dict[TopicPartition, dict[str, Share]] = {}
        self._clock = clock
        self._may_overlap = may_overlap
        self._beyond: dict[TopicPartition, set[int]] = {}
        self._last_begin: dict[TopicPartition, Share] = {}
        self._shares_count = 0

    # --- what a member is given --------------------------------------------------------------------------------------

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member may read these, besides what it had."""
        for partition in sorted(partitions):
            shares = self.held.setdefault(partition, {})
            if member in shares:
                self._contradicted(f"{partition} was given to {member}, which had it")
            others = [other for other in shares if other != member and not self._may_overlap(other, member)]
            if others:
                self._contradicted(f"{partition} was given to {member}, while {', '.join(others)} had it")
            self._shares_count += 1
            shares[member] = Share(member, partition, self._shares_count)

    def taken(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """A member may read these no more."""
        for partition in sorted(partitions):
            share = self.held.get(partition, {}).pop(member, None)
            if share is None:
                self._contradicted(f"{partition} was taken from {member}, which did not have it")
            else:
                share.is_held = False

    def gone(self, member: str) -> None:
        """A member's process is no more, and with it all members ``MEMBER.N`` that it was."""
        for shares in self.held.values():
            for each in [each for each in shares if each == member or each.startswith(f"{member}.")]:
                del shares[each]

    def held_by(self, member: str) -> list[TopicPartition]:
        """What a member may read now."""
        return [partition for partition, shares in self.held.items() if member in shares]

    # --- what it does ------------------------------------------------------------------------------------------------

    def given(self, member: str, partition: TopicPartition, offset: int) -> Share | None:
        """A member was handed a record; it begins to process it."""
        share = self.held.get(partition, {}).get(member)
        if share is None:
            self._contradicted(f"{member} was given {partition} at {offset}, which it may not read")
            return None
        if share.begin < 0:
            self._begins(share, offset)
        elif offset != share.next_offset:
            self._contradicted(f"{member} was given {partition} at {offset}, not at {share.next_offset}")
        share.next_offset = offset + 1
        return share

    def _begins(self, share: Share, offset: int) -> None:
        """Whoever comes next begins no later than where all was processed, and not before where others began."""
        partition = share.partition
        end = self.processed_ends.get(partition, 0)
        if offset > end:
            self._contradicted(f"{share.member} begins with {partition} at {offset}; {end} was not processed")
        before = self._last_begin.get(partition)
        if before is not None and before.number < share.number and offset < before.begin:
            self._contradicted(
                f"{share.member} begins with {partition} at {offset}, {before.member} before it began at {before.begin}"
            )
        share.begin = offset
        self._last_begin[partition] = share

    def processed(self, partition: TopicPartition, offset: int) -> None:
        """A member is done with a record."""
        self.processed_count += 1
        end, beyond = self.processed_ends.get(partition, 0), self._beyond.setdefault(partition, set())
        if offset >= end:
            beyond.add(offset)
        while end in beyond:
            beyond.discard(end)
            end += 1
        self.processed_ends[partition] = end

    def _contradicted(self, text: str) -> None:
        self.contradictions.append(f"at {self._clock():.3f} s: group {self.name}: {text}")


@dataclass(slots=True)
class Followed:
    """What one reader without a group was given.

    :ivar records: by partition, (offset, value) each.
    """

    reader: str
    read_committed: bool
    records: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)

    def given(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """It was given a record."""
        self.records.setdefault(partition, []).append((offset, value))

    def has_come_to(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether it was given everything before these offsets."""
        return all(key in self.records and self.records[key][-1][0] + 1 >= end for key, end in ends.items())


class Tellings:
    """All that the applications of one run were told.

    :ivar sent: by value.
    :ivar left_behind: what processes left that had ended in order, as sentences.
    """

    def __init__(self, clock: Callable[[], float], groups: Iterable[str], may_overlap: MayOverlap) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.groups = {name: GroupTellings(name, clock, may_overlap) for name in groups}
        self.followed: list[Followed] = []
        self.left_behind: list[str] = []

    @property
    def contradictions(self) -> list[str]:
        """Whatever any of them was told that cannot be."""
        return [*self.left_behind, *(text for group in self.groups.values() for text in group.contradictions)]

    def sending(self, producer: str, number: int, size: int, key: bytes | None) -> Sent:
        """A record that a producer is about to send.

        :param size: of its value, at least.
        """
        value = (b"%s/%d " % (producer.encode(), number)).ljust(size, b".")
        sent = self.sent[value] = Sent(value, producer, number, key)
        return sent
