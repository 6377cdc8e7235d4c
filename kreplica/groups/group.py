"""What classic groups and those of KIP-848 have in common: all that offsets, listings and deletions need of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair

CLASSIC = "classic"
CONSUMER = "consumer"
"""The types of groups, as ListGroups names them (KIP-848)."""

UNKNOWN_MEMBER = ""
"""The member id of who is not a member, or not yet."""

NO_GENERATION = -1
"""The generation, or member epoch, of a commit by somebody who is not a member."""


class Group(Protocol):
    """One group; owned by the ``GroupShard`` of its partition."""

    @property
    def group_id(self) -> str: ...

    @property
    def type_name(self) -> str:
        """``CLASSIC`` or ``CONSUMER``."""

    @property
    def state_name(self) -> str:
        """As ListGroups shows it: ``Empty``, ``Stable``, ``Dead`` ..."""

    @property
    def protocol_type(self) -> str:
        """``consumer`` for consumers, ``connect`` for workers ...; empty for a group that never had members."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        """Whether somebody may commit offsets now; for a member it counts as a heartbeat too.

        :param member_id: ``UNKNOWN_MEMBER`` for who assigns partitions to itself.
        :param generation: or the member's epoch; ``NO_GENERATION`` for who is not a member.
        :param transactional: by TxnOffsetCommit, of which older versions do not say who commits.
        :param version: of the request.
        :raise KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
            STALE_MEMBER_EPOCH, COORDINATOR_NOT_AVAILABLE.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether somebody may fetch offsets.

        :raise KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member of it reads that topic, or might: its offsets are not deleted, and do not expire."""

    def check_offset_delete(self) -> None:
        """Whether offsets of topics that nobody is subscribed to may be deleted (KIP-496).

        :raise KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP, what its members read is not known.
        """

    def check_delete(self) -> None:
        """:raise KafkaError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP, it has members."""

    def expires_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset counts (KIP-211); None while it does not expire."""

    def tombstones(self) -> list[Pair]:
        """What removes the group itself, without its offsets, from the log; nothing where nothing was written."""

    def unload(self) -> None:
        """The group is not here any more: stop all timers, and answer whoever waits with NOT_COORDINATOR."""
