"""History of what applications sent, received and were assigned, with immediate checks for contradictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kreplica.client.producer import Written
from kreplica.model import TopicPartition
from kreplica.testing.histories.transaction_history import TransactionHistory

SINGLE_ATTEMPT_S = 0.02
"""A commit that took less time was not retried, so no earlier attempt can still arrive."""


@dataclass(slots=True)
class Sent:
    """One record of one producer.

    :param number: position in the producer's order of sends.
    :param written: the acknowledgement.
    :param error: name of the error that the producer reported.
    :param is_lost: True if the record will certainly never be in the log.
    """

    value: bytes
    producer: str
    number: int
    key: bytes | None
    written: Written | None = None
    error: str = ""
    is_lost: bool = False


MayOverlap = Callable[[str, str], bool]
"""Called with the old and the new owner of a partition."""


@dataclass(slots=True)
class Ownership:
    """One member's ownership of a partition, from its assignment to its revocation.

    :param number: position in the order of assignments.
    :param committed: lower bound of the committed offset when the partition was assigned.
    :ivar begin: the first received offset; -1 if none was received.
    :ivar next_offset: the next expected offset; -1 if none was received.
    """

    member: str
    partition: TopicPartition
    number: int
    committed: int = 0
    begin: int = -1
    next_offset: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """One commit of a member, with its retries."""

    offsets: Mapping[TopicPartition, int]
    started_s: float


class MemberHistory:
    """Assignments, reads, processed records and commits of the members of one group.

    The partitions must have consecutive offsets.

    :param clock: returns seconds.
    :param may_overlap: returns True if the old owner of a partition may not know yet that it has lost the partition.
    :ivar processed_ends: by partition, the first offset that is not processed.
    :ivar processed_count: number of processed records, including repetitions.
    """

    def __init__(self, name: str, clock: Callable[[], float], may_overlap: MayOverlap = lambda old, new: False) -> None:
        self.name = name
        self.processed_count = 0
        self.processed_ends: dict[TopicPartition, int] = {}
        self.contradictions: list[str] = []
        self._owners: dict[TopicPartition, dict[str, Ownership]] = {}
        self._clock = clock
        self._may_overlap = may_overlap
        self._processed_early: dict[TopicPartition, set[int]] = {}
        self._last_started: dict[TopicPartition, Ownership] = {}
        self._assignment_count = 0
        self._owners_of_generation: dict[tuple[int, TopicPartition], str] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._late_commits: dict[TopicPartition, int] = {}
        self._pending: list[Commit] = []

    # --- assignments -------------------------------------------------------------------------------------------------

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Record that a member was assigned further partitions."""
        for partition in sorted(partitions):
            owners = self._owners.setdefault(partition, {})
            if member in owners:
                self._contradicted(f"{partition} was assigned to {member}, which already owned it")
            other_owners = [other for other in owners if other != member and not self._may_overlap(other, member)]
            if other_owners:
                self._contradicted(f"{partition} was assigned to {member} while {', '.join(other_owners)} owned it")
            self._assignment_count += 1
            owners[member] = Ownership(member, partition, self._assignment_count, self._committed_at_least(partition))
            self._late_commits.pop(partition, None)  # commits of earlier generations can no longer take effect

    def _committed_at_least(self, partition: TopicPartition) -> int:
        committed = self._committed.get(partition, 0)
        pending = [commit.offsets[partition] for commit in self._pending if partition in commit.offsets]
        return min([committed, self._late_commits.get(partition, committed), *pending])

    def assigned_in(self, generation: int, member_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Record that partitions were assigned in a generation of a classic group.

        :param member_id: member ID, or instance ID of a static member, whose replacement has the same assignment.
        """
        for partition in sorted(partitions):
            owner = self._owners_of_generation.setdefault((generation, partition), member_id)
            if owner != member_id:
                self._contradicted(f"{partition} was assigned to {owner} and to {member_id} in generation {generation}")

    def revoked(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Record that partitions were revoked from a member, or lost."""
        for partition in sorted(partitions):
            if self._owners.get(partition, {}).pop(member, None) is None:
                self._contradicted(f"{partition} was revoked from {member}, which did not own it")

    def ended(self, member: str) -> None:
        """Record the end of a member's process, and of its incarnations ``MEMBER.N``."""
        for owners in self._owners.values():
            for owner in [owner for owner in owners if owner == member or owner.startswith(f"{member}.")]:
                del owners[owner]

    def has_received(self, member: str, partition: TopicPartition, offset: int) -> bool:
        """Return True if a member received a record under its current ownership, so that its commits may include it."""
        ownership = self._owners.get(partition, {}).get(member)
        return ownership is not None and 0 <= ownership.begin <= offset < ownership.next_offset

    # --- records -----------------------------------------------------------------------------------------------------

    def received(self, member: str, partition: TopicPartition, offset: int) -> None:
        ownership = self._owners.get(partition, {}).get(member)
        if ownership is None:
            self._contradicted(f"{member} received {partition} at {offset}, but does not own the partition")
            return
        if ownership.begin < 0:
            self._started(ownership, offset)
        elif offset != ownership.next_offset:
            self._contradicted(f"{member} received {partition} at {offset}, not at {ownership.next_offset}")
        ownership.next_offset = offset + 1

    def _started(self, ownership: Ownership, offset: int) -> None:
        """Check that the first offset of an owner skips no record, and is not before that of an earlier owner."""
        partition = ownership.partition
        end = self.processed_ends.get(partition, 0)
        if offset > end:
            self._contradicted(f"{ownership.member} starts {partition} at {offset}, but {end} was not processed")
        member, committed = ownership.member, ownership.committed
        if offset < committed:
            self._contradicted(f"{member} starts {partition} at {offset}, but {committed} was committed")
        earlier = self._last_started.get(partition)
        if earlier is not None and earlier.number < ownership.number and offset < earlier.begin:
            self._contradicted(
                f"{member} starts {partition} at {offset}, but {earlier.member} started earlier at {earlier.begin}"
            )
        ownership.begin = offset
        self._last_started[partition] = ownership

    def processed(self, partition: TopicPartition, offset: int) -> None:
        self.processed_count += 1
        end, later_offsets = self.processed_ends.get(partition, 0), self._processed_early.setdefault(partition, set())
        if offset >= end:
            later_offsets.add(offset)
        while end in later_offsets:
            later_offsets.discard(end)
            end += 1
        self.processed_ends[partition] = end

    def commit_began(self, offsets: Mapping[TopicPartition, int]) -> Commit:
        """Record the start of a commit; end it with ``committed``, ``commit_failed`` or ``commit_rejected``."""
        commit = Commit(dict(offsets), self._clock())
        self._pending.append(commit)
        return commit

    def committed(self, commit: Commit) -> None:
        """Record that a commit succeeded; members that start later must not start before it."""
        self._committed.update(commit.offsets)
        if self._clock() - commit.started_s > SINGLE_ATTEMPT_S:
            self.commit_failed(commit)
        else:
            self._pending.remove(commit)

    def commit_failed(self, commit: Commit) -> None:
        """Record a commit with attempts that may still arrive, even after later commits of the same generation."""
        self._pending.remove(commit)
        for partition, offset in commit.offsets.items():
            self._late_commits[partition] = min(offset, self._late_commits.get(partition, offset))

    def commit_rejected(self, commit: Commit) -> None:
        """Record that the group rejected a commit, because its member no longer owns the partitions."""
        self._pending.remove(commit)

    def _contradicted(self, text: str) -> None:
        self.contradictions.append(f"at {self._clock():.3f} s: group {self.name}: {text}")


@dataclass(slots=True)
class ReadHistory:
    """Records that a reader without a group received.

    :ivar records: by partition, pairs of offset and value.
    """

    reader: str
    read_committed: bool
    records: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)

    def received(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        self.records.setdefault(partition, []).append((offset, value))

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return True if the reader has received the last record before each of these offsets."""
        return all(key in self.records and self.records[key][-1][0] + 1 >= end for key, end in ends.items())


class ApplicationHistory:
    """History of all applications of one run.

    :param targets: number of partitions that are written to in transactions.
    :ivar sent: by value.
    :ivar transactions: history of the target topic.
    :ivar leaks: unreleased resources and missing outcomes of stopped applications, as sentences.
    """

    def __init__(
        self, clock: Callable[[], float], groups: Iterable[str], may_overlap: MayOverlap, targets: int
    ) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.transactions = TransactionHistory(targets, clock)
        self.groups = {name: MemberHistory(name, clock, may_overlap) for name in groups}
        self.reads: list[ReadHistory] = []
        self.leaks: list[str] = []

    @property
    def contradictions(self) -> list[str]:
        group_contradictions = (text for group in self.groups.values() for text in group.contradictions)
        return [*self.leaks, *self.transactions.contradictions, *group_contradictions]

    def sending(self, producer: str, number: int, size: int, key: bytes | None) -> Sent:
        """Create the next record of a producer.

        :param size: minimum size of its value in bytes.
        """
        value = (b"%s/%d " % (producer.encode(), number)).ljust(size, b".")
        sent = self.sent[value] = Sent(value, producer, number, key)
        return sent
