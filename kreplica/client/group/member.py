"""What members have in common, whichever protocol their group has: how they begin, lose what they have, and end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.group.coordinator_connection import CoordinatorLink
from kreplica.client.group.listener_calls import Handover
from kreplica.client.group.membership import AssignmentListener
from kreplica.client.group.notifier import Bell
from kreplica.client.group.offsets import GroupOffsets
from kreplica.client.group.options import GroupOptions
from kreplica.client.group.session_timer import Session
from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.messages import Api

log = Logger()

LEAVE_TIMEOUT_S = 5.0
NOT_IN_TIME = "partitions were not given up in the time that a rebalance may take"


class GroupMember(ABC):
    """A ``Membership``; two coroutines are what it does: one lives through rebalances, one sends heartbeats.

    What they learn meets in ``_lose`` and ``_fail``, which do their work at once.

    :cvar has_epoch: it is known by its member epoch, also where it asks for offsets.
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
        self._link = CoordinatorLink(cluster, options.group_id)
        self._handover = Handover(listener, reactor)
        self._offsets = GroupOffsets(cluster, self._link, self)
        self._session = Session(reactor, options.patience_s, self._session_over)
        self._works: list[Deferred[None]] = []
        self._begun = Bell(reactor)
        self._todo = Bell(reactor)
        self._beat_now = Bell(reactor)
        self._has_begun = False
        self._is_stopping = False
        self._is_over = False
        self._since_s = 0.0

    # --- for users ---

    @property
    def identity(self) -> GroupIdentity:
        """As what the member acts now."""
        return self._identity

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What it may read now."""
        return self._assignment

    @property
    def error(self) -> Exception | None:
        """Why the membership ended by itself, for good."""
        return self._error

    async def start(self) -> None:
        """See ``Membership``; may be called once.

        :raise GaveUp: no coordinator took part in that for the time of an operation.
        """
        assert not self._works, "a membership is started once"
        self._since_s = self._reactor.seconds()
        for work in (self._live(), *self._beside()):
            self._works.append(Deferred.fromCoroutine(self._guarded(work)))
        try:
            await self._begun.wait()
        except CancelledError:
            self._halt()
            raise
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """See ``Membership``; also where it did not begin, or has ended."""
        if self._works and not self._is_over:
            self._is_stopping = True
            self._todo.ring()
            self._interrupt()
            self._handover.limit(self._reactor.seconds() + self._options.rebalance_timeout_s)
            try:
                await _end_of(self._works[0])
                await pause(self._reactor, 0)  # what ended it may be at work still, and is cancelled
            except CancelledError:
                self._halt()
                raise
            self._halt()
        await self._link.close()

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See ``Membership``."""
        await self._offsets.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """See ``Membership``."""
        return await self._offsets.committed(partitions)

    # --- what protocols differ in ---

    @abstractmethod
    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""

    @abstractmethod
    async def refused(self, error: BrokerRefused, said: GroupIdentity) -> ClientError:
        """See ``Committer``."""

    @abstractmethod
    async def _live(self) -> None:
        """Be a member until ``_is_stopping``, then give everything up, and leave.

        :raise ClientError: the group refuses this member.
        """

    @abstractmethod
    def _beside(self) -> list[Coroutine[Deferred[Any], Any, None]]:
        """What goes on beside that, until it is cancelled: heartbeats."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End what waits long on the coordinator."""

    @abstractmethod
    def _forget(self) -> None:
        """It is not in the group any more, as far as it knows: nothing that it says is to be in its old name."""

    # --- for protocols ---

    def _ready(self) -> None:
        """The first assignment was given to the listener."""
        self._has_begun = True
        self._begun.ring()

    async def _give_up(self, partitions: frozenset[TopicPartition], until_s: float) -> None:
        """Let the listener give partitions up; if it does not in time, all is lost."""
        if not partitions:
            return
        if await self._handover.revoked(partitions, until_s):
            self._assignment -= partitions
        elif self._assignment:
            self._lose(NOT_IN_TIME)

    async def _take(self, partitions: frozenset[TopicPartition]) -> None:
        """Give partitions to the listener, besides those that it has."""
        added = partitions - self._assignment
        self._assignment |= added
        if added and not await self._handover.assigned(added) and self._assignment:
            self._lose(NOT_IN_TIME)

    async def _say_goodbye(self, api: Api, body: dict[str, Any]) -> None:
        """Leave, where the coordinator can be reached soon; else the session will end by itself."""
        self._session.end()
        leaving = Deferred.fromCoroutine(self._link.ask(api, body))
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

    def _lose(self, why: str) -> None:
        """Somebody else may read its partitions."""
        lost, self._assignment = self._assignment, frozenset()
        self._session.end()
        self._forget()
        if lost:
            log.warn("group {group}: {count} partitions are lost: {why}", group=self._group, count=len(lost), why=why)
        self._handover.lost(lost)

    def _fail(self, error: Exception) -> None:
        """The membership is over, for good."""
        if self._error is not None or self._is_over:
            return
        self._error = error
        self._lose(str(error))
        # One of those that are cancelled may be the one that calls this, and whoever is told may stop this member.
        self._reactor.callLater(0, self._end, error)

    def _end(self, error: Exception) -> None:
        if self._has_begun and not self._is_over:
            self._handover.ended(error)
        self._halt()

    def _check_patience(self, error: ClientError, asked_s: float) -> None:
        """Of a first assignment, which does not come for an error.

        :param asked_s: when that was asked for which the error came: long ago where others were waited for.
        :raise GaveUp: there were errors for long enough.
        """
        options, now_s = self._cluster.options, self._reactor.seconds()
        if now_s - asked_s > options.connect_timeout_s * 1.5:
            self._since_s = now_s
        if not self._has_begun and now_s - self._since_s > options.operation_timeout_s:
            text = f"group {self._group} could not be joined in {options.operation_timeout_s:g} s: {error}"
            raise GaveUp(text) from error

    @property
    def _group(self) -> str:
        return self._options.group_id

    def _session_over(self) -> None:
        self._interrupt()
        self._lose("no heartbeat was answered for as long as the group waits")
        self._todo.ring()

    async def _guarded(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        try:
            await work
        except CancelledError:
            return
        except ClientError as error:
            self._fail(error)
        except Exception as error:
            log.failure("a member of group {group}", group=self._group)
            self._fail(error)

    def _halt(self) -> None:
        """End at once."""
        if self._is_over:
            return
        self._is_over = True
        self._session.end()
        if self._assignment:
            self._lose("the membership was ended before they were given up")
        self._handover.close()
        for work in self._works:
            work.cancel()
        self._begun.ring()
        closing = Deferred.fromCoroutine(self._link.close())
        closing.addErrback(lambda failure: log.failure("closing a membership", failure))


def _end_of(work: Deferred[None]) -> Deferred[None]:
    """Fires when some work ends; cancelling it leaves the work as it is."""
    waiting: Deferred[None] = Deferred()

    def ended(_: None) -> None:
        if not waiting.called:
            waiting.callback(None)

    work.addCallback(ended)
    return waiting
