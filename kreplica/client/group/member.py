"""Base class of group members: start, loss of partitions, and end of a membership."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.group.coordinator_connection import CoordinatorConnections
from kreplica.client.group.listener_calls import ListenerCalls
from kreplica.client.group.membership import AssignmentListener
from kreplica.client.group.notifier import Notifier
from kreplica.client.group.offsets import MemberOffsets
from kreplica.client.group.options import GroupOptions
from kreplica.client.group.session_timer import SessionTimer
from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.messages import Api

log = Logger()

LEAVE_TIMEOUT_S = 5.0
RELEASE_TIMED_OUT = "partitions were not released within the rebalance timeout"


class GroupMember(ABC):
    """A ``Membership`` that runs several coroutines: one handles rebalances, another sends heartbeats.

    The coroutines call ``_lose_partitions`` and ``_fail``, which take effect immediately.

    :cvar has_epoch: True if OffsetFetch requests contain the member epoch.
    """

    has_epoch = False

    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
    ) -> None:
        reactor = cluster.runtime.reactor
        self._cluster = cluster
        self._options = options
        self._reactor = reactor
        self._topics = frozenset(topics)
        self._identity = GroupIdentity(options.group_id, instance_id=options.instance_id)
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._error: Exception | None = None
        self._coordinator = CoordinatorConnections(cluster, options.group_id)
        self._listener_calls = ListenerCalls(listener, reactor)
        self._offsets = MemberOffsets(cluster, self._coordinator, self)
        self._session = SessionTimer(reactor, options.patience_s, self._on_session_expired)
        self._tasks: list[Deferred[None]] = []
        self._joined = Notifier(reactor)
        self._changed = Notifier(reactor)
        self._heartbeat_due = Notifier(reactor)
        self._has_begun = False
        self._is_stopping = False
        self._is_over = False
        self._patience_start_s = 0.0

    # --- public methods ---

    @property
    def identity(self) -> GroupIdentity:
        """The member's current identity."""
        return self._identity

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the member may consume."""
        return self._assignment

    @property
    def error(self) -> Exception | None:
        """The final error of the membership."""
        return self._error

    async def start(self) -> None:
        """See ``Membership``; may be called only once.

        :raise GaveUp: the group could not be joined within the operation timeout.
        """
        assert not self._tasks, "start() must be called only once"
        self._patience_start_s = self._reactor.seconds()
        for work in (self._run(), *self._background()):
            self._tasks.append(Deferred.fromCoroutine(self._run_guarded(work)))
        try:
            await self._joined.wait()
        except CancelledError:
            self._terminate()
            raise
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """See ``Membership``; may be called before ``start`` and repeatedly."""
        if self._tasks and not self._is_over:
            self._is_stopping = True
            self._changed.notify()
            self._interrupt()
            self._listener_calls.limit(self._reactor.seconds() + self._options.rebalance_timeout_s)
            try:
                await _end_of(self._tasks[0])
                await pause(self._reactor, 0)  # lets the code that resumed the coroutine return before it is cancelled
            except CancelledError:
                self._terminate()
                raise
            self._terminate()
        await self._coordinator.close()

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = lambda: None
    ) -> None:
        """See ``Membership``."""
        await self._offsets.commit(offsets, on_attempted)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """See ``Membership``."""
        return await self._offsets.committed(partitions)

    # --- implemented by each protocol ---

    @abstractmethod
    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""

    @abstractmethod
    async def application_error(self, error: BrokerRefused, sent_identity: GroupIdentity) -> ClientError:
        """See ``Committer``."""

    @abstractmethod
    async def _run(self) -> None:
        """Handle rebalances until ``_is_stopping``, then release all partitions and leave.

        :raise ClientError: the group rejects the member.
        """

    @abstractmethod
    def _background(self) -> list[Coroutine[Deferred[Any], Any, None]]:
        """Return the other coroutines of the member, which run until cancelled."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Abort long requests to the coordinator."""

    @abstractmethod
    def _reset_identity(self) -> None:
        """Reset the identity, because the member is no longer in the group."""

    # --- called by the protocols ---

    def _signal_joined(self) -> None:
        """Let ``start`` return, because the listener has been notified of the first assignment."""
        self._has_begun = True
        self._joined.notify()

    async def _release(self, partitions: frozenset[TopicPartition], until_s: float) -> None:
        """Let the listener release partitions; if it exceeds the limit, all partitions are lost."""
        if not partitions:
            return
        if await self._listener_calls.call_on_revoked(partitions, until_s):
            self._assignment -= partitions
        elif self._assignment:
            self._lose_partitions(RELEASE_TIMED_OUT)

    async def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Add the partitions that are not assigned yet, and notify the listener of them."""
        added = partitions - self._assignment
        self._assignment |= added
        if added and not await self._listener_calls.call_on_assigned(added) and self._assignment:
            self._lose_partitions(RELEASE_TIMED_OUT)

    async def _send_leave(self, api: Api, body: dict[str, Any]) -> None:
        """Send a request to leave the group; if the coordinator is unreachable, the session expires later."""
        self._session.end()
        leaving = Deferred.fromCoroutine(self._coordinator.request(api, body))
        timer = self._reactor.callLater(LEAVE_TIMEOUT_S, leaving.cancel)
        try:
            await leaving
        except ClientError:
            pass
        except CancelledError:
            if self._is_over:
                raise
        finally:
            if timer.active():
                timer.cancel()

    def _lose_partitions(self, reason: str) -> None:
        """Drop all partitions, because other members may consume them."""
        lost, self._assignment = self._assignment, frozenset()
        self._session.end()
        self._reset_identity()
        if lost:
            count = len(lost)
            log.warn("group {group}: lost {count} partitions: {why}", group=self._group, count=count, why=reason)
        self._listener_calls.call_on_lost(lost)

    def _fail(self, error: Exception) -> None:
        """End the membership with a final error."""
        if self._error is not None or self._is_over:
            return
        self._error = error
        self._lose_partitions(str(error))
        # Deferred, because the caller may be one of the cancelled coroutines, and the listener may call stop.
        self._reactor.callLater(0, self._end, error)

    def _end(self, error: Exception) -> None:
        if self._has_begun and not self._is_over:
            self._listener_calls.call_on_ended(error)
        self._terminate()

    def _check_patience(self, error: ClientError, sent_s: float) -> None:
        """Give up if the first assignment takes too long.

        :param sent_s: time at which the failed request was sent; a request that waited long for other members restarts
            the time limit.
        :raise GaveUp: requests failed for the operation timeout.
        """
        options, now_s = self._cluster.options, self._reactor.seconds()
        if now_s - sent_s > options.connect_timeout_s * 1.5:
            self._patience_start_s = now_s
        if not self._has_begun and now_s - self._patience_start_s > options.operation_timeout_s:
            text = f"group {self._group} could not be joined within {options.operation_timeout_s:g} s: {error}"
            raise GaveUp(text) from error

    @property
    def _group(self) -> str:
        return self._options.group_id

    def _on_session_expired(self) -> None:
        self._interrupt()
        self._lose_partitions("the session expired: no response to heartbeats")
        self._changed.notify()

    async def _run_guarded(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        try:
            await work
        except CancelledError:
            return
        except ClientError as error:
            self._fail(error)
        except Exception as error:
            log.failure("a member of group {group} failed", group=self._group)
            self._fail(error)

    def _terminate(self) -> None:
        """End the membership immediately."""
        if self._is_over:
            return
        self._is_over = True
        self._session.end()
        if self._assignment:
            self._lose_partitions("the membership ended before they were released")
        self._listener_calls.close()
        for work in self._tasks:
            work.cancel()
        self._joined.notify()
        closing = Deferred.fromCoroutine(self._coordinator.close())
        closing.addErrback(lambda failure: log.failure("cannot close a membership", failure))


def _end_of(work: Deferred[None]) -> Deferred[None]:
    """Return a Deferred that fires when a coroutine ends; cancelling it does not cancel the coroutine."""
    waiting: Deferred[None] = Deferred()

    def ended(_: None) -> None:
        if not waiting.called:
            waiting.callback(None)

    work.addCallback(ended)
    return waiting
