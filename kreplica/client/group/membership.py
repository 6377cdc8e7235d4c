"""Interface between a consumer and its membership, for all group protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition


class AssignmentListener(Protocol):
    """Receives a member's assignment; each call starts after the previous one has returned."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Release partitions: finish the processing of delivered records and commit; the group waits for this.

        The call is cancelled, followed by ``on_lost``, when the rebalance timeout is over.
        """

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start to consume partitions, in addition to the current ones."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop partitions at once: other members may consume them, and nothing can be committed for them.

        If a call of another method is in progress, it is cancelled first.
        """

    def on_ended(self, error: Exception) -> None:
        """Handle the end of the membership by a final error, after ``on_lost`` if there were partitions.

        Not called if ``start`` raises.
        """


class Membership(Protocol):
    """A consumer's membership in its group.

    Heartbeats are sent by timers, independent of the application.
    """

    @property
    def identity(self) -> GroupIdentity:
        """The member's current identity."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member may consume."""

    async def start(self) -> None:
        """Join the group; return when the listener has received the first assignment, possibly an empty one.

        :raise ClientError: the group rejects the member.
        """

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscribed topics; the group rebalances if that changes the assignment."""

    async def stop(self) -> None:
        """Release all partitions and leave; a static member keeps its assignment until its session expires."""

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = lambda: None
    ) -> None:
        """Commit offsets; wait for a rebalance in progress if necessary.

        :param on_attempted: called once, after the first attempt has succeeded or failed.
        :raise CommitFailed: the member no longer owns the partitions; nothing was committed.
        :raise ClientError: the coordinator did not respond in time, or rejected the request.
        """

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of partitions that have one; wait for open transactions (KIP-447)."""

    @property
    def error(self) -> Exception | None:
        """The final error of the membership; None while it is active."""
