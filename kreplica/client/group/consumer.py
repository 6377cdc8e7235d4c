"""A member of a group of KIP-848: the coordinator says what it may own, and it comes to that step by step.

Heartbeats carry everything: what it reads, what it owns, and what it is to own.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.client.cluster import Cluster
from kreplica.client.group.error_actions import Verdict, verdict
from kreplica.client.group.member import GroupMember
from kreplica.client.group.member_state import JOINING, Standing
from kreplica.client.group.membership import AssignmentListener
from kreplica.client.group.options import GroupOptions
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import BrokerRefused, ClientError, CommitFailed, RebalanceUnderWay, RequestTimedOut
from kreplica.client_core.offsets import NO_GENERATION, GroupIdentity
from kreplica.errors import ErrorCode
from kreplica.wire.messages import CONSUMER_GROUP_HEARTBEAT

UNKNOWN_TOPIC_WAIT_S = 0.5
"""Until the cluster is asked again for a topic that it did not know by its id."""

ANSWERS_MIN = 2
"""After so many answers without another epoch there is none that would be on its way."""


class ConsumerMember(GroupMember):
    """A ``Membership``."""

    has_epoch = True

    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
    ) -> None:
        super().__init__(cluster, options, topics, listener)
        member_id = str(UUID(int=cluster.runtime.random.getrandbits(128), version=4))
        self._standing = Standing(options, member_id, self._topics)
        self._identity = self._identity._replace(member_id=member_id)
        self._target_s = 0.0
        self._answers_count = 0
        self._stale: tuple[GroupIdentity, int] | None = None
        self._is_leaving = False

    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""
        self._topics = frozenset(topics)
        self._standing.topics = sorted(self._topics)
        self._beat_now.ring()

    async def refused(self, error: BrokerRefused, said: GroupIdentity) -> ClientError:
        """See ``Committer``."""
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH and verdict(error) not in (Verdict.OUTDATED, Verdict.UNKNOWN):
            return error
        self._beat_now.ring()
        if said is not self._identity:
            return RebalanceUnderWay(str(error))
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            if self._stale is None or self._stale[0] is not said:
                self._stale = said, self._answers_count
            if self._answers_count < self._stale[1] + ANSWERS_MIN:
                return RebalanceUnderWay(str(error))  # the answer with the new epoch is on its way
        return CommitFailed(str(error))

    # --- coming to what it is to own ---

    async def _live(self) -> None:
        at_most_s: float | None = None
        while not self._is_stopping:
            await self._todo.wait(at_most_s)
            if not self._is_stopping:
                at_most_s = None if await self._reconcile() else UNKNOWN_TOPIC_WAIT_S
        await self._give_up(self._assignment, self._reactor.seconds() + self._options.rebalance_timeout_s)
        await self._leave()

    async def _reconcile(self) -> bool:
        """Give up what it is not to own, and take what it is to own.

        :return: whether it came as far as it may for now.
        """
        standing, target = self._standing, self._standing.target
        if target is None:
            return True
        wanted, is_complete = standing.wanted(self._cluster.view.topics)
        if not is_complete:
            wanted, is_complete = await self._ask_names()
        surplus = standing.surplus(wanted)
        if surplus and standing.target is target:
            await self._give_up(surplus, self._target_s + self._options.rebalance_timeout_s)
            standing.gave_up(surplus - self._assignment)
            self._beat_now.ring()
        if standing.target is not target:  # there is more to do, or all was lost
            self._todo.ring()
            return True
        if wanted.keys() - standing.owned.keys():
            standing.takes(wanted)
            self._beat_now.ring()
            await self._take(frozenset(wanted))
        self._ready()
        return is_complete

    async def _ask_names(self) -> tuple[Any, bool]:
        try:
            await self._cluster.refresh(self._topics)
        except ClientError:
            pass  # it is asked again
        return self._standing.wanted(self._cluster.view.topics)

    async def _leave(self) -> None:
        self._is_leaving = True
        if self._standing.epoch != JOINING or self._answers_count > 0:
            await self._say_goodbye(CONSUMER_GROUP_HEARTBEAT, self._standing.last_words())

    def _interrupt(self) -> None:
        """Nothing waits long."""

    def _forget(self) -> None:
        self._standing.lost()
        self._identity = self._identity._replace(generation=NO_GENERATION)
        self._beat_now.ring()

    # --- heartbeats ---

    def _beside(self) -> list[Coroutine[Deferred[Any], Any, None]]:
        return [self._beat()]

    async def _beat(self) -> None:
        wait_s, failures = 0.0, 0
        while not self._is_leaving:
            await self._beat_now.wait(wait_s)
            if self._is_stopping and self._standing.epoch == JOINING:
                return
            asked_s = self._reactor.seconds()
            try:
                await self._heartbeat()
            except ClientError as error:
                failures += 1
                options = self._cluster.options
                wait_s = backoff_s(
                    self._cluster.runtime.random, failures, options.backoff_s, options.backoff_s_max
                )
                try:
                    self._check_patience(error, asked_s)
                except ClientError as final:
                    self._fail(final)
            else:
                wait_s, failures = self._standing.interval_s, 0

    async def _heartbeat(self) -> None:
        """Say what there is to say, and take in what it is told.

        :raise ClientError: nothing was told.
        """
        standing, identity, asked_s = self._standing, self._identity, self._reactor.seconds()
        question = standing.question()
        try:
            answer = await self._link.ask(
                CONSUMER_GROUP_HEARTBEAT, question, timeout_s=self._options.session_timeout_s / 2
            )
        except ClientError as error:
            if identity is self._identity and not self._is_leaving:
                standing.not_answered()
                self._told(error)
            return
        if identity is not self._identity or self._is_leaving:
            return
        if self._session.is_stale(asked_s):
            standing.not_answered()
            raise RequestTimedOut(f"group {self._group}: an answer came after the session's end")
        self._answers_count += 1
        self._session.heard(asked_s)
        has_target = standing.answered(question, answer)
        now = (standing.member_id, standing.epoch)
        if now != (identity.member_id, identity.generation):
            self._identity = identity._replace(member_id=standing.member_id, generation=standing.epoch)
        if has_target:
            self._target_s = asked_s
            self._todo.ring()
            self._handover.limit(asked_s + self._options.rebalance_timeout_s)

    def _told(self, error: ClientError) -> None:
        found = verdict(error)
        is_new = self._standing.epoch == JOINING
        code = error.code if isinstance(error, BrokerRefused) else None
        if code is ErrorCode.GROUP_ID_NOT_FOUND and not is_new:
            found = Verdict.UNKNOWN
        if code is ErrorCode.UNRELEASED_INSTANCE_ID and not self._has_begun:
            found = Verdict.WAIT  # the one before died, and will be taken for dead
        if found is Verdict.FINAL:
            self._fail(error)
        elif found in (Verdict.OUTDATED, Verdict.UNKNOWN) and not is_new:
            self._lose(str(error))
        else:
            raise error
