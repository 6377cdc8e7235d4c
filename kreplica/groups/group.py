"""Interface of classic and KIP-848 groups, as used by offsets, listings and deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair

CLASSIC = "classic"
"""Group type of the classic protocol, as reported by ListGroups."""

CONSUMER = "consumer"
"""Group type of the KIP-848 protocol, as reported by ListGroups."""

UNKNOWN_MEMBER = ""
"""Member id of a client that is not a member yet."""

NO_GENERATION = -1
"""Generation or member epoch in a commit from a client that is not a member."""


class Group(Protocol):
    """A group; owned by the ``GroupShard`` of its partition."""

    @property
    def group_id(self) -> str: ...

    @property
    def type_name(self) -> str:
        """``CLASSIC`` or ``CONSUMER``."""

    @property
    def state_name(self) -> str:
        """State as reported by ListGroups: ``Empty``, ``Stable``, ``Dead``, and others."""

    @property
    def protocol_type(self) -> str:
        """``consumer``, ``connect`` and so on; empty for a group that never had members."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members and may be deleted."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        """Raise an error if a client may not commit offsets now.

        In a classic group, a commit outside a transaction also restarts the member's session.

        :param member_id: ``UNKNOWN_MEMBER`` for a client that assigns partitions to itself.
        :param generation: generation or member epoch; ``NO_GENERATION`` for a client that is not a member.
        :param transactional: True for TxnOffsetCommit, whose older versions have no member id.
        :param version: version of the request.
        :raise KafkaError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
            STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise an error if a client may not fetch offsets.

        :raise KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """

    @property
    def member_count(self) -> int:
        """Number of members."""

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members are subscribed to; empty if their subscriptions cannot be decoded."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member is or may be subscribed to the topic, so that the topic's offsets must be kept."""

    def check_offset_delete(self) -> None:
        """Raise an error if the offsets of topics without subscribers may not be deleted (KIP-496).

        :raise KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the members' subscriptions are unknown.
        """

    def check_delete(self) -> None:
        """Raise an error if the group may not be deleted.

        :raise KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """

    def expires_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return the start of an offset's retention time (KIP-211), or None while the offset does not expire."""

    def tombstones(self) -> list[Pair]:
        """Return the tombstones of the group's records, excluding its offsets; empty if no records were written."""

    def unload(self) -> None:
        """Stop all timers and respond to pending requests with NOT_COORDINATOR."""
