"""Creates memberships."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.cluster import Cluster
from kreplica.client.group.assignors import by_names
from kreplica.client.group.classic import ClassicMember
from kreplica.client.group.consumer import ConsumerMember
from kreplica.client.group.member import GroupMember
from kreplica.client.group.membership import AssignmentListener, Membership
from kreplica.client.group.options import GroupOptions, GroupProtocol
from kreplica.client_core.errors import BrokerRefused, ClientError, UnsupportedVersion
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

_MAKERS: dict[GroupProtocol, type[GroupMember]] = {
    GroupProtocol.CLASSIC: ClassicMember,
    GroupProtocol.CONSUMER: ConsumerMember,
}

CHANGES_MAX = 3
"""Maximum number of protocol changes while joining."""


def new_membership(
    cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
) -> Membership:
    """Return a membership that has not been started; the caller starts and stops it.

    :param topics: initially subscribed topics.
    :param listener: notified of changes to the assignment.
    :raise ValueError: an assignor is unknown.
    """
    by_names(options.assignors)
    protocol = GroupProtocol(options.protocol)
    if protocol is GroupProtocol.AUTO:
        return AutoProtocolMember(cluster, options, topics, listener)
    return _MAKERS[protocol](cluster, options, topics, listener)


class AutoProtocolMember:
    """A ``Membership`` that uses KIP-848 if the broker and the group support it, otherwise the classic protocol.

    If the group is recreated with the other protocol, the member switches to that protocol.
    """

    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
    ) -> None:
        self._cluster, self._options, self._listener = cluster, options, listener
        self._topics = frozenset(topics)
        self._kind = GroupProtocol.CONSUMER
        self._member = self._new()
        self._protocol_switch: Deferred[None] | None = None
        self._is_stopping = False
        self._error: Exception | None = None

    @property
    def identity(self) -> GroupIdentity:
        """The member's current identity."""
        return self._member.identity

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member may consume."""
        return self._member.assignment

    @property
    def error(self) -> Exception | None:
        """The fatal error that ended the membership; None while it is active."""
        return self._error

    async def start(self) -> None:
        """See ``Membership``."""
        try:
            await self._start()
        except Exception as error:
            self._error = error
            raise

    async def _start(self) -> None:
        for changes in count():
            try:
                await self._member.start()
            except ClientError as error:
                if changes >= CHANGES_MAX or self._is_stopping or not uses_other_protocol(error, self._kind):
                    raise
                await self._replace_member()
            else:
                return

    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""
        self._topics = frozenset(topics)
        self._member.subscribe(self._topics)

    async def stop(self) -> None:
        """See ``Membership``."""
        self._is_stopping = True
        if self._protocol_switch is not None:
            self._protocol_switch.cancel()
        await self._member.stop()

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = lambda: None
    ) -> None:
        """See ``Membership``."""
        await self._member.commit(offsets, on_attempted)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """See ``Membership``."""
        return await self._member.committed(partitions)

    def _new(self) -> GroupMember:
        return _MAKERS[self._kind](self._cluster, self._options, self._topics, self)

    async def _replace_member(self) -> None:
        """Replace the member with one that uses the other protocol; the caller starts it."""
        await self._member.stop()
        self._kind = GroupProtocol.CLASSIC if self._kind is GroupProtocol.CONSUMER else GroupProtocol.CONSUMER
        self._member = self._new()

    async def _switch_protocol(self) -> None:
        try:
            await self._replace_member()
            await self._start()
        except CancelledError:
            return
        except Exception as error:
            self._error = error
            self._listener.on_ended(error)

    # --- listener of the current member ---

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """See ``AssignmentListener``."""
        await self._listener.on_revoked(partitions)

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """See ``AssignmentListener``."""
        await self._listener.on_assigned(partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """See ``AssignmentListener``."""
        self._listener.on_lost(partitions)

    def on_ended(self, error: Exception) -> None:
        """See ``AssignmentListener``."""
        if not self._is_stopping and isinstance(error, ClientError) and uses_other_protocol(error, self._kind):
            self._protocol_switch = Deferred.fromCoroutine(self._switch_protocol())
        else:
            self._error = error
            self._listener.on_ended(error)


def uses_other_protocol(error: ClientError, kind: GroupProtocol) -> bool:
    """Return True if joining failed because the group uses the other protocol or the broker lacks this one."""
    if kind is GroupProtocol.CLASSIC:
        return isinstance(error, BrokerRefused) and error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if isinstance(error, UnsupportedVersion):
        return True
    return isinstance(error, BrokerRefused) and error.code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    )
