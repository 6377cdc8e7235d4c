"""The elected leader of an ensemble: executes writes, proposes transactions and ends sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kreplica.runtime import Runtime
from kreplica.testing.ensemble.channel import Channel
from kreplica.testing.ensemble.replica import Replica
from kreplica.testing.ensemble.request import ForwardedRequest
from kreplica.testing.ensemble.transactions import Change, SessionClosed, SessionOpened, Transaction
from kreplica.zookeeper.embedded.sessions import Session, Sessions
from kreplica.zookeeper.errors import ZooKeeperError
from kreplica.zookeeper.records import ConnectRequest, reply_frame

TICK_MS = 2000
"""Tick time of the servers, the same as in the embedded ZooKeeper server; session timeouts are 2 to 20 ticks."""

CHECK_S = 0.5
"""Interval between checks for expired sessions."""

Respond = Callable[[], None]


@dataclass(slots=True)
class Proposal:
    """A transaction and the response to its client, or only a response that waits for earlier transactions."""

    transaction: Transaction | None
    link: Link | None
    respond: Respond | None


class Link:
    """A server's connection with the leader.

    :ivar number: the server.
    :ivar up: requests to the leader.
    :ivar down: transactions and responses from the leader, which the server applies with its lag.
    :ivar resumed: sessions that moved to the server, to which its lag does not apply.
    :ivar is_held: True while the server and the leader cannot reach each other.
    :ivar is_frozen: True while the server applies no transactions.
    """

    def __init__(self, number: int, term: LeaderTerm, up: Channel, down: Channel, resumed: Channel) -> None:
        self.number = number
        self.term = term
        self.up = up
        self.down = down
        self.resumed = resumed
        self.is_held = False
        self.is_frozen = False

    def set_held(self, is_held: bool) -> None:
        self.is_held = is_held
        self._update_channels()

    def set_frozen(self, is_frozen: bool) -> None:
        self.is_frozen = is_frozen
        self._update_channels()

    def _update_channels(self) -> None:
        for channel in (self.up, self.down, self.resumed):
            if self.is_held or (self.is_frozen and channel is self.down):
                channel.hold()
            else:
                channel.release()

    def close(self) -> None:
        for channel in (self.up, self.down, self.resumed):
            channel.close()


class Responses(Protocol):
    """Handler of the leader's responses, at the server to which the client is connected."""

    def respond(self, request: ForwardedRequest, frames: bytes) -> None: ...

    def disconnect(self, request: ForwardedRequest) -> None:
        """Close the connection of a session that has moved to another server."""


class LeaderTerm:
    """One elected leader, from its election until it loses its quorum or its process ends.

    A write is executed on the leader's own state, which includes uncommitted transactions, and committed after the
    round trip to a quorum. A transaction and its response reach a server in one channel, so a client receives the
    response after its server has applied the transaction.

    :param number: the leader's server.
    :param runtime: runtime of the leader's process, which handles all requests.
    :param replica: state with all earlier transactions; the term changes it.
    :param round_trip_s: returns the duration of the next round trip to a quorum.
    :param commit: called with each committed transaction.
    :ivar commits: round trips to the quorum; held while the leader has no quorum.
    :ivar proposals: uncommitted transactions.
    :ivar replicated_count: number of ``proposals`` that a follower may hold; None for all.
    """

    def __init__(
        self,
        number: int,
        runtime: Runtime,
        replica: Replica,
        round_trip_s: Callable[[], float],
        commit: Callable[[Transaction], None],
    ) -> None:
        self.number = number
        self.runtime = runtime
        self.proposals: deque[Proposal] = deque()
        self.replicated_count: int | None = None
        self.commits = Channel(runtime.reactor, round_trip_s)
        self._reactor = runtime.reactor
        self._replica = replica
        self._commit = commit
        self._owners: dict[int, int] = {}
        self._sessions = Sessions(TICK_MS, runtime.random)
        # As in ZooKeeper, the new leader does not know the last requests of the clients: timeouts start again.
        self._sessions.restore(replica.sessions.values(), self._reactor.seconds())
        self._timer = self._reactor.callLater(CHECK_S, self._check_sessions)

    def stop(self) -> None:
        """Stop expiring sessions; the leader's process has noticed that it no longer leads."""
        if self._timer.active():
            self._timer.cancel()

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open_session(self, link: Link, timeout_ms: int, on_opened: Callable[[Session | None], None]) -> None:
        """Open a session; ``on_opened`` is called at the server after the transaction."""
        session = self._sessions.open(timeout_ms, self.runtime.wall_clock_ms(), self._reactor.seconds())
        self._owners[session.session_id] = link.number
        self._propose(SessionOpened(self._next_zxid(), session.row()), link, partial(on_opened, session))

    def resume_session(
        self, link: Link, request: ConnectRequest, on_resumed: Callable[[Session | None], None]
    ) -> None:
        """Move a session to a server; ``on_resumed`` is called at that server, with None if the session has ended."""
        session = self._sessions.reattach(
            request.session_id, request.password, request.timeout_ms, self._reactor.seconds()
        )
        if session is not None:
            self._owners[session.session_id] = link.number
        link.resumed.send(on_resumed, session)

    def restart_timeouts(self, session_ids: list[int]) -> None:
        """Restart the timeouts of sessions whose clients have sent requests to a server."""
        for session_id in session_ids:
            session = self._sessions.by_id.get(session_id)
            if session is not None:
                session.last_heard = self._reactor.seconds()

    def expire(self, session_id: int) -> None:
        """End a session as if its client had been silent for too long; idempotent."""
        if session_id in self._sessions.by_id:
            self._close(session_id, None, None)

    def _check_sessions(self) -> None:
        for session in self._sessions.expired(self._reactor.seconds()):
            self._close(session.session_id, None, None)
        self._timer = self._reactor.callLater(CHECK_S, self._check_sessions)

    def _close(self, session_id: int, link: Link | None, respond: Respond | None) -> None:
        self._sessions.close(session_id)
        self._owners.pop(session_id, None)
        closed = SessionClosed(self._next_zxid(), session_id)
        self._replica.apply(closed)
        self._propose(closed, link, respond)

    # --- requests ----------------------------------------------------------------------------------------------------

    def write(self, link: Link, request: ForwardedRequest, server: Responses) -> None:
        """Execute a write and propose its transaction; the response to a failed write waits for earlier ones."""
        if not self._may_request(link, request, server):
            return
        replica, time_ms = self._replica, self.runtime.wall_clock_ms()
        request.barrier = replica.commits.durable
        zxid_before = replica.zxid
        transaction: Change | None = None
        try:
            replica.write(request, request.xid, request.opcode, request.body, time_ms)
        except ZooKeeperError as error:
            frames = reply_frame(request.xid, replica.zxid, error.code)
        else:
            frames = b"".join(request.sink)
            if replica.zxid > zxid_before:
                transaction = Change(
                    replica.zxid, time_ms, request.session_id, request.identities, request.opcode, request.body
                )
        self._propose(transaction, link, partial(server.respond, request, frames))

    def close_session(self, link: Link, request: ForwardedRequest, server: Responses) -> None:
        if self._may_request(link, request, server):
            frames = reply_frame(request.xid, self._next_zxid(), 0)
            self._close(request.session_id, link, partial(server.respond, request, frames))

    def sync(self, link: Link, request: ForwardedRequest, server: Responses) -> None:
        """Respond after all earlier transactions.

        As in ZooKeeper, this needs no quorum if there is no uncommitted transaction: a leader that was replaced but
        has not noticed this responds, too.
        """
        if not self._may_request(link, request, server):
            return
        frames = reply_frame(request.xid, self._replica.zxid, 0, request.body)
        respond = partial(server.respond, request, frames)
        if self.proposals:
            self._propose(None, link, respond)
        else:
            link.down.send(respond)

    def _may_request(self, link: Link, request: ForwardedRequest, server: Responses) -> bool:
        if request.session_id not in self._sessions.by_id:
            return False  # the end of the session, which closes the connection, is on its way to the server
        if self._owners.setdefault(request.session_id, link.number) == link.number:
            return True
        link.down.send(server.disconnect, request)
        return False

    # --- transactions ------------------------------------------------------------------------------------------------

    def _next_zxid(self) -> int:
        return self._replica.zxid + 1

    def _propose(self, transaction: Transaction | None, link: Link | None, respond: Respond | None) -> None:
        if isinstance(transaction, SessionOpened):
            self._replica.apply(transaction)
        self.proposals.append(Proposal(transaction, link, respond))
        self.commits.send(self._commit_next)

    def _commit_next(self) -> None:
        proposal = self.proposals.popleft()
        if proposal.transaction is not None:
            self._commit(proposal.transaction)
        if proposal.link is not None and proposal.respond is not None:
            proposal.link.down.send(proposal.respond)

    def set_quorum(self, has_quorum: bool) -> None:
        """Commit proposals only while a quorum is connected with the leader."""
        if has_quorum:
            self.replicated_count = None
            self.commits.release()
        elif self.replicated_count is None:
            self.replicated_count = len(self.proposals)
            self.commits.hold()

    def end(self) -> list[Transaction]:
        """Stop committing; return the uncommitted transactions that a later leader may have."""
        self.commits.close()
        replicated = list(self.proposals)[: self.replicated_count]
        return [proposal.transaction for proposal in replicated if proposal.transaction is not None]
