"""What a consumer and its membership in a group expect of each other, whichever protocol the group has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition


class AssignmentListener(Protocol):
    """Who reads what a membership gives; each is called once the one before has returned."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Give partitions up: finish with what was handed out of them, and commit; the group waits for that.

        It waits no longer than the rebalance takes: when the time is over, this is cancelled, and ``on_lost`` comes.
        """

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin to read partitions, besides those that there were."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget partitions at once: somebody else may read them already; nothing can be committed for them.

        One of the calls above that is under way is cancelled before.
        """

    def on_ended(self, error: Exception) -> None:
        """The membership has ended by itself, for good; ``on_lost`` came before where there was anything to lose.

        This is not called where ``start`` raises.
        """


class Membership(Protocol):
    """One consumer's place in its group.

    Heartbeats go on by timers of the reactor, whatever the application awaits meanwhile.
    """

    @property
    def identity(self) -> GroupIdentity:
        """As what the member acts now."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What it may read now."""

    async def start(self) -> None:
        """Join; returns when the first assignment was given to the listener, be it empty.

        :raise ClientError: the group refuses this member for good.
        """

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics than before; the group rebalances where that changes something."""

    async def stop(self) -> None:
        """Give everything up in order, and leave; a static member does not leave, but is expected back."""

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit how far partitions were read.

        While a rebalance is under way, it waits for that where it must.

        :raise CommitFailed: this member does not own the partitions any more, so nothing was committed.
        :raise ClientError: the coordinator did not answer within the time, or refuses.
        """

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group committed, once no transaction is to decide that (KIP-447); without those that have none."""

    @property
    def error(self) -> Exception | None:
        """Why the membership ended by itself, for good; None while it goes on."""
