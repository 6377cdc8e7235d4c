"""Who is a member of a group, who leads, and which protocols all of them speak: no clock, no log, no answers."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.errors import ProtocolError
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import JoinAnswer, JoinedMember, Protocols
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.memory_limits import GroupAccount
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, parse_versioned

CONSUMERS = "consumer"
"""The protocol type of consumers, whose subscriptions can be read here."""


SUBSCRIPTION_BYTES_MAX = 2 * 2**20
"""Subscriptions of one group that are decoded, which takes up to 25 times their size; larger ones count as unknown."""

PENDING_BYTES = 1024
"""Charged for a member id that was given out, and its session."""


class Roster:
    """What a request needs of it costs the same however many members there are.

    :param account: charged for each member while it is here.
    :ivar members: by their ids.
    :ivar pending: who was told an id, and has not joined with it yet: the time until it has to.
    :ivar leader: the member that assigns; None while there are no members.
    :ivar protocol_type: of the members there are, or were last; None where there never was one.
    :ivar unsynced: who has not asked for its assignment in this generation (a set in order).
    """

    def __init__(self, account: GroupAccount, protocol_type: str | None = None) -> None:
        self._account = account
        self.members: dict[str, Member] = {}
        self.pending: dict[str, SessionTimer] = {}
        self.leader: str | None = None
        self.protocol_type = protocol_type
        self.unsynced: dict[str, None] = {}
        self.awaiting_join_count = 0
        self._by_answer: dict[int, Member] = {}  # by identity: each answer is kept alive by its member
        self._ids: dict[str, str] = {}
        self._speakers: dict[str, int] = {}
        self._topics: tuple[str | None, frozenset[str] | None] | None = None

    # --- who ---------------------------------------------------------------------------------------------------------

    def id_of(self, instance_id: str | None) -> str | None:
        """The member that has an instance id now; None where nobody has."""
        return self._ids.get(instance_id) if instance_id is not None else None

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one leads, and says of what type the group is."""
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
        """Remove a member; if it led, another does."""
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
        """A static member came again, under a new id: it stays what it was, leader too."""
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
        """What a member says when it joins again."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._charge(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Keep a member's assignment."""
        member.assignment = assignment
        self._charge(member)

    def await_member(self, member_id: str, session: SessionTimer, address: str) -> None:
        """Keep the session of a client that received a member id, and has not joined with it yet."""
        self.pending[member_id] = session
        self._account.set(member_id, address, PENDING_BYTES)

    def drop_pending(self, member_id: str) -> None:
        """Forget such a client; nothing where there is none."""
        session = self.pending.pop(member_id, None)
        if session is not None:
            session.end()
            self._account.remove(member_id)

    # --- joining -----------------------------------------------------------------------------------------------------

    def await_join(self, member: Member, answer: JoinAnswer) -> None:
        """A member has joined and waits for the others; whoever waited under its name before was answered."""
        member.awaiting_join = answer
        self.awaiting_join_count += 1
        self._by_answer[id(answer)] = member

    def end_join(self, member: Member) -> JoinAnswer | None:
        """Take the answer that a member waits for; None where it does not."""
        answer = member.awaiting_join
        if answer is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
            self._by_answer.pop(id(answer), None)
        return answer

    def waiting_for(self, answer: JoinAnswer) -> Member | None:
        """Return the member that waits for that very answer; None where it has been given."""
        member = self._by_answer.get(id(answer))
        return member if member is not None and member.awaiting_join is answer else None

    @property
    def has_all_joined(self) -> bool:
        """Whether everybody has who is known, also of those who were told an id only."""
        return self.awaiting_join_count == len(self.members) and not self.pending

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who has joined.

        :return: whether there is one.
        """
        if not self.awaiting_join_count:
            return False
        if self.leader is None or self.members[self.leader].awaiting_join is None:
            self.leader = next(id for id, member in self.members.items() if member.awaiting_join is not None)
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to join: the patience of the most patient one."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- protocols ---------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether there is a protocol that all members speak, and who comes with these does too."""
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._speakers.get(name, 0) == everybody for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members like best, of those that all speak; of several the one voted for first."""
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._speakers[name] == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def joined_members(self, protocol: str | None) -> Sequence[JoinedMember]:
        """What the leader is told of everybody."""
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        ]

    def topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that consumers subscribe to; None where that cannot be read: other members, another format."""
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
            count = self._speakers.get(name, 0) + step
            if count:
                self._speakers[name] = count
            else:
                del self._speakers[name]
