"""Interface between a consumer and its membership, for all group protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition


class AssignmentListener(Protocol):
    """Receives a member's assignment; each call starts after the previous one has returned."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Release partitions: finish processing delivered records and commit their offsets; the group waits for this.

        When the rebalance timeout is over, the call is cancelled and ``on_lost`` is called.
        """

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start consuming partitions, in addition to the current ones."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop partitions immediately: other members may consume them, and their offsets can no longer be committed.

        If a call of another method is in progress, that call is cancelled first.
        """

    def on_ended(self, error: Exception) -> None:
        """Handle a final error that ended the membership; ``on_lost`` is called first if there were partitions.

        Not called if ``start`` raises.
        """


class Membership(Protocol):
    """A consumer's membership in its group.

    Heartbeats are sent by timers, independently of the application.
    """

    @property
    def identity(self) -> GroupIdentity:
        """The member's current identity."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member may consume."""

    async def start(self) -> None:
        """Join the group; return when the listener has been notified of the first assignment, which may be empty.

        :raise ClientError: the group rejects the member.
        """

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscribed topics; the group rebalances if that changes the assignment."""

    async def stop(self) -> None:
        """Release all partitions and leave; a static member keeps its assignment until its session expires."""

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = lambda: None
    ) -> None:
        """Commit offsets; if necessary, wait for a rebalance in progress.

        :param on_attempted: called once, after the first attempt has succeeded or failed.
        :raise CommitFailed: the member no longer owns the partitions; nothing was committed.
        :raise ClientError: the coordinator did not respond in time, or rejected the request.
        """

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the partitions that have one; wait for open transactions (KIP-447)."""

    @property
    def error(self) -> Exception | None:
        """The final error of the membership; None while it is active."""
