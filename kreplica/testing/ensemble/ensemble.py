"""The log of an ensemble, its elections, and isolated servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kreplica.runtime import Runtime
from kreplica.testing.ensemble.channel import Channel
from kreplica.testing.ensemble.replica import Replica
from kreplica.testing.ensemble.term import LeaderTerm, Link
from kreplica.testing.ensemble.transactions import EpochStarted, Transaction, first_zxid
from kreplica.testing.simulator.scheduler import Process, Scheduler

HOST = "coordinator"
"""Prefix of the hosts' names, and name of the process that holds the log and elects leaders."""

LATENCY_S = (0.0002, 0.002)
LAG_CHANCE = 0.2
"""Probability that a message from the leader has a random lag in addition to its latency."""
SYNC_LIMIT_S = 2.0
"""Time until a server notices that it cannot reach the leader, or until the leader notices that it has no quorum."""
NOTICE_S_MAX = 1.0
"""Maximum difference between the times at which two servers notice a lost connection."""
DISCONNECT_S_MAX = 0.05
ELECTION_S = (0.2, 2.0)


@dataclass(frozen=True, slots=True)
class EnsembleOptions:
    """Options of an ensemble.

    :param servers: number of servers; a majority elects a leader.
    :param lag_s: mean lag of the messages that lag (``LAG_CHANCE``).
    :param users: passwords by user, for SASL DIGEST-MD5.
    """

    servers: int = 3
    lag_s: float = 0.02
    users: Mapping[str, str] = field(default_factory=dict)


class ServerProcess(Protocol):
    """Process of a server.

    :ivar link: connection with the leader that the server follows; None without a leader.
    """

    runtime: Runtime
    link: Link | None

    def follow(self, link: Link) -> None:
        """Serve clients after applying the transactions already sent on this link."""

    def applied(self, transaction: Transaction) -> None:
        """Notify clients after a transaction was applied to the replica."""

    def leave(self) -> None:
        """Close all connections: the server has no leader."""


class Member:
    """One server; outlives its processes.

    :ivar replica: state of the server; durable.
    :ivar applied_count: number of log entries that the replica contains.
    :ivar server: the running process.
    :ivar is_isolated: True if other servers cannot reach it; clients can.
    :ivar lag_s: mean lag, which faults change.
    """

    def __init__(self, number: int, lag_s: float) -> None:
        self.number = number
        self.replica = Replica()
        self.applied_count = 0
        self.server: ServerProcess | None = None
        self.is_isolated = False
        self.lag_s = lag_s


class Ensemble:
    """Elects one of the running servers, and distributes its transactions to the other servers.

    :ivar members: the servers by number, from 1.
    :ivar committed: state with all committed transactions.
    :ivar term: the elected leader; None during an election.
    """

    def __init__(self, seed: int, scheduler: Scheduler, options: EnsembleOptions) -> None:
        self.members = {number: Member(number, options.lag_s) for number in range(1, options.servers + 1)}
        self.options = options
        self.committed = Replica()
        self.term: LeaderTerm | None = None
        self._log: list[Transaction] = []
        self._uncommitted: list[Transaction] = []
        self._epoch = 0
        self._random = Random(f"{seed}/ensemble")
        self._scheduler = scheduler
        self._process = Process(f"{HOST}-log")
        self._is_electing = False
        self._give_up_count = 0

    @property
    def _majority(self) -> int:
        return len(self.members) // 2 + 1

    # --- membership --------------------------------------------------------------------------------------------------

    def add_process(self, number: int, server: ServerProcess) -> None:
        """Add a process; it serves when it has a leader."""
        self.members[number].server = server
        self.members[number].replica = self.members[number].replica.without_watches()
        self._membership_changed()

    def remove_process(self, number: int) -> None:
        """Remove a process; if it led, the other servers notice this immediately."""
        self.members[number].server = None
        self._membership_changed()

    def isolate(self, number: int) -> None:
        """Cut a server's links to the other servers, but not to clients."""
        self.members[number].is_isolated = True
        self._membership_changed()

    def heal(self, number: int | None = None) -> None:
        """Undo ``isolate`` for one server or all."""
        for member in self.members.values():
            if number in (None, member.number):
                member.is_isolated = False
        self._membership_changed()

    def set_frozen(self, number: int, is_frozen: bool) -> None:
        """Stop a server from applying transactions, or let it catch up."""
        server = self.members[number].server
        assert server is not None, f"server {number} is not running"
        assert server.link is not None, f"server {number} has no leader"
        server.link.set_frozen(is_frozen)

    def _membership_changed(self) -> None:
        term = self.term
        if term is None:
            self._schedule_election()
            return
        if not self._leads(term):
            self._end_term(term)
            return
        has_quorum = self._has_quorum(term)
        term.set_quorum(has_quorum)
        if not has_quorum:
            self._give_up_count += 1
            self._schedule(self._notice_s(), self._give_up, term, self._give_up_count)
        else:
            self._give_up_count += 1
        for member in self.members.values():
            self._update_link(term, member)

    def _leads(self, term: LeaderTerm) -> bool:
        leader = self.members[term.number].server
        return leader is not None and leader.runtime is term.runtime

    def _connected(self, term: LeaderTerm) -> list[Member]:
        """Return the servers that the leader reaches, including itself."""
        leader = self.members[term.number]
        if leader.is_isolated:
            return [leader]
        return [member for member in self.members.values() if member.server is not None and not member.is_isolated]

    def _has_quorum(self, term: LeaderTerm) -> bool:
        return len(self._connected(term)) >= self._majority

    def _update_link(self, term: LeaderTerm, member: Member) -> None:
        server = member.server
        if server is None or member.number == term.number:
            return
        is_connected = member in self._connected(term)
        if server.link is None:
            if is_connected:
                self._follow(term, member, server)
        elif server.link.term is not term:
            if is_connected:
                server.leave()
                self._follow(term, member, server)
        else:
            server.link.set_held(not is_connected)
            if not is_connected:
                server.runtime.reactor.callLater(self._notice_s(), self._notice, server, server.link)

    def _notice(self, server: ServerProcess, link: Link) -> None:
        """Make a server that still has no leader disconnect its clients."""
        if server.link is link and link.is_held:
            server.leave()

    def rejoin_later(self, server: ServerProcess) -> None:
        """Make a server that has lost its leader follow the current one."""
        term = self.term
        for member in self.members.values():
            if member.server is server and term is not None and member.number != term.number:
                self._schedule(self._random.uniform(0, DISCONNECT_S_MAX), self._rejoin, member)

    def _rejoin(self, member: Member) -> None:
        if self.term is not None:
            self._update_link(self.term, member)

    # --- leaders -----------------------------------------------------------------------------------------------------

    def _give_up(self, term: LeaderTerm, count: int) -> None:
        if self.term is term and self._give_up_count == count and not self._has_quorum(term):
            self._end_term(term)

    def _end_term(self, term: LeaderTerm) -> None:
        """Keep a random part of the uncommitted transactions: those that the next leader will have."""
        self.term = None
        uncommitted = term.end()
        self._uncommitted = uncommitted[: self._random.randint(0, len(uncommitted))]
        for member in self.members.values():
            server = member.server
            if server is not None and server.link is not None:
                # A leader without a quorum notices this later than the other servers.
                delay_s = self._random.uniform(0, NOTICE_S_MAX if member.number == term.number else DISCONNECT_S_MAX)
                server.runtime.reactor.callLater(delay_s, self._leave, server, server.link)
        self._schedule_election()

    def _leave(self, server: ServerProcess, link: Link) -> None:
        if server.link is link:
            server.leave()

    def _schedule_election(self) -> None:
        if not self._is_electing and len(self._candidates()) >= self._majority:
            self._is_electing = True
            self._schedule(self._random.uniform(*ELECTION_S), self._elect)

    def _candidates(self) -> list[Member]:
        return [member for member in self.members.values() if member.server is not None and not member.is_isolated]

    def _elect(self) -> None:
        self._is_electing = False
        candidates = self._candidates()
        if self.term is not None or len(candidates) < self._majority:
            return
        for transaction in self._uncommitted:
            self._commit(transaction)
        self._uncommitted = []
        self._epoch += 1
        self._commit(EpochStarted(first_zxid(self._epoch)))
        leader = self._random.choice(candidates)
        assert leader.server is not None
        self.term = term = LeaderTerm(
            leader.number, leader.server.runtime, self.committed.copy(), self._latency_s, self._commit
        )
        for member in candidates:
            server = member.server
            assert server is not None
            if server.link is not None:
                server.leave()
            self._follow(term, member, server)

    def expire(self, session_id: int) -> None:
        """Make the leader end a session."""
        if self.term is not None:
            self.term.expire(session_id)

    # --- transactions ------------------------------------------------------------------------------------------------

    def _commit(self, transaction: Transaction) -> None:
        self.committed.apply(transaction)
        self._log.append(transaction)
        for member in self.members.values():
            server = member.server
            if server is not None and server.link is not None and server.link.term is self.term:
                server.link.down.send(self._apply, member, server, transaction)

    def _apply(self, member: Member, server: ServerProcess, transaction: Transaction) -> None:
        member.applied_count += 1
        member.replica.apply(transaction)
        server.applied(transaction)

    def _follow(self, term: LeaderTerm, member: Member, server: ServerProcess) -> None:
        is_leader = member.number == term.number
        latency_s: Callable[[], float] = self._latency_s
        lag_s: Callable[[], float] = lambda: self._lag_s(member)  # noqa: E731
        link = Link(
            member.number,
            term,
            Channel(term.runtime.reactor, _no_delay if is_leader else latency_s),
            Channel(server.runtime.reactor, _no_delay if is_leader else lag_s),
            Channel(server.runtime.reactor, _no_delay if is_leader else latency_s),
        )
        for transaction in self._log[member.applied_count :]:
            link.down.send(self._apply, member, server, transaction)
        server.follow(link)

    def _latency_s(self) -> float:
        return self._random.uniform(*LATENCY_S)

    def _lag_s(self, member: Member) -> float:
        latency_s = self._latency_s()
        if self._random.random() < LAG_CHANCE:
            latency_s += self._random.expovariate(1 / member.lag_s)
        return latency_s

    def _notice_s(self) -> float:
        return SYNC_LIMIT_S + self._random.uniform(0, NOTICE_S_MAX)

    def _schedule(self, delay_s: float, function: Callable[..., None], *args: object) -> None:
        self._scheduler.post(self._process, delay_s, function, *args)


def _no_delay() -> float:
    return 0.0
