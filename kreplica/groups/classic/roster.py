"""Members of a classic group, its leader, and the protocols that all members support."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.errors import ProtocolError
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import JoinCallback, JoinedMember, Protocols
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.memory_limits import GroupAccount
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, parse_versioned

CONSUMERS = "consumer"
"""Protocol type of consumers, the only one whose subscriptions can be decoded."""


SUBSCRIPTION_BYTES_MAX = 2 * 2**20
"""Maximum total size of subscriptions that are decoded; decoding takes up to 25 times this size in memory."""

PENDING_BYTES = 1024
"""Memory charged for a member id that has been assigned but not used yet, including its session timer."""


class Roster:
    """Members of one group. Membership changes take constant time, regardless of the number of members.

    :param account: charged for each member.
    :ivar members: by member id.
    :ivar pending: member ids that have been assigned but not used yet, with the timers that expire them.
    :ivar leader: id of the member that computes the assignment; None without members.
    :ivar protocol_type: protocol type of the current or last members; None if there never were any.
    :ivar unsynced: ids of members that have not yet sent SyncGroup in this generation (an ordered set).
    """

    def __init__(self, account: GroupAccount, protocol_type: str | None = None) -> None:
        self._account = account
        self.members: dict[str, Member] = {}
        self.pending: dict[str, SessionTimer] = {}
        self.leader: str | None = None
        self.protocol_type = protocol_type
        self.unsynced: dict[str, None] = {}
        self.awaiting_join_count = 0
        self._by_callback: dict[int, Member] = {}  # key: id() of a callback, which its member keeps alive
        self._ids: dict[str, str] = {}
        self._supporter_counts: dict[str, int] = {}
        self._topics: tuple[str | None, frozenset[str] | None] | None = None

    # --- members ----------------------------------------------------------------------------------------------------

    def id_of(self, instance_id: str | None) -> str | None:
        """Return the id of the member that currently has this instance id, or None."""
        return self._ids.get(instance_id) if instance_id is not None else None

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one becomes the leader and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, 1)
        self._charge(member)

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, another member becomes the leader."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._ids[member.instance_id]
        self.unsynced.pop(member.member_id, None)
        self._count(member.protocols, -1)
        self._account.remove(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        member.release()

    def rename(self, member: Member, member_id: str) -> None:
        """Replace the id of a static member that rejoined; the member keeps its role."""
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self.unsynced:
            del self.unsynced[member.member_id]
            self.unsynced[member_id] = None
        self._account.rename(member.member_id, member_id)
        member.member_id = member_id
        self.members[member_id] = member
        if member.instance_id is not None:
            self._ids[member.instance_id] = member_id

    def update(self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Set the protocols and timeouts of a member that rejoined."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._charge(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self._charge(member)

    def await_member(self, member_id: str, session: SessionTimer, address: str) -> None:
        """Track a member id that was assigned to a client until the client joins with it."""
        self.pending[member_id] = session
        self._account.set(member_id, address, PENDING_BYTES)

    def drop_pending(self, member_id: str) -> None:
        """Remove an unused member id if it exists."""
        session = self.pending.pop(member_id, None)
        if session is not None:
            session.end()
            self._account.remove(member_id)

    # --- joining -----------------------------------------------------------------------------------------------------

    def await_join(self, member: Member, respond: JoinCallback) -> None:
        """Register a member's pending JoinGroup request; an earlier request must have been responded to."""
        member.awaiting_join = respond
        self.awaiting_join_count += 1
        self._by_callback[id(respond)] = member

    def end_join(self, member: Member) -> JoinCallback | None:
        """Remove and return the callback of a member's pending JoinGroup request, or None."""
        respond = member.awaiting_join
        if respond is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
            self._by_callback.pop(id(respond), None)
        return respond

    def member_awaiting(self, respond: JoinCallback) -> Member | None:
        """Return the member whose pending request has this callback, or None if it has been responded to."""
        member = self._by_callback.get(id(respond))
        return member if member is not None and member.awaiting_join is respond else None

    @property
    def has_all_joined(self) -> bool:
        """True if all members have joined and no assigned member id is still unused."""
        return self.awaiting_join_count == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is a member that has joined.

        :return: False if no member has joined.
        """
        if not self.awaiting_join_count:
            return False
        if self.leader is None or self.members[self.leader].awaiting_join is None:
            self.leader = next(id for id, member in self.members.items() if member.awaiting_join is not None)
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- protocols ---------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return True if all members support at least one of these protocols."""
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporter_counts.get(name, 0) == member_count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; each member votes for its most preferred common protocol."""
        member_count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._supporter_counts[name] == member_count:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def joined_members(self, protocol: str | None) -> Sequence[JoinedMember]:
        """Return all members for the leader's JoinGroup response."""
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """Return the topics that consumers are subscribed to; None if the subscriptions cannot be decoded."""
        if self._topics is None or self._topics[0] != protocol:
            self._topics = (protocol, self._read_topics(protocol))
        return self._topics[1]

    def _read_topics(self, protocol: str | None) -> frozenset[str] | None:
        if self.protocol_type != CONSUMERS or (self.members and protocol is None):
            return None
        topics: set[str] = set()
        if sum(len(member.metadata(protocol)) for member in self.members.values()) > SUBSCRIPTION_BYTES_MAX:
            return None
        for member in self.members.values():
            try:
                _, subscription = parse_versioned(SUBSCRIPTION, member.metadata(protocol))
            except ProtocolError:
                return None
            topics.update(subscription["topics"])
        return frozenset(topics)

    def _charge(self, member: Member) -> None:
        self._account.set(member.member_id, member.client_host, member.size_bytes)

    def _count(self, protocols: Protocols, step: int) -> None:
        self._topics = None
        for name in dict(protocols):
            count = self._supporter_counts.get(name, 0) + step
            if count:
                self._supporter_counts[name] = count
            else:
                del self._supporter_counts[name]
