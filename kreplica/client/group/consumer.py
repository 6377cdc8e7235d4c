"""Member of a KIP-848 group: the coordinator sends a target assignment, and the member moves towards it.

Heartbeats contain the subscription, the owned partitions and the target assignment.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.client.cluster import Cluster
from kreplica.client.group.error_actions import ErrorAction, error_action
from kreplica.client.group.member import GroupMember
from kreplica.client.group.member_state import JOINING, MemberState
from kreplica.client.group.membership import AssignmentListener
from kreplica.client.group.options import GroupOptions
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import BrokerRefused, ClientError, CommitFailed, RebalanceUnderWay, RequestTimedOut
from kreplica.client_core.offsets import NO_GENERATION, GroupIdentity
from kreplica.errors import ErrorCode
from kreplica.wire.messages import CONSUMER_GROUP_HEARTBEAT

UNKNOWN_TOPIC_WAIT_S = 0.5
"""Delay before the metadata of an unknown topic id is requested again."""

RESPONSES_MIN = 2
"""Number of heartbeat responses to wait for a new epoch before a stale-epoch error is reported."""


class ConsumerMember(GroupMember):
    """A ``Membership`` of a KIP-848 group."""

    has_epoch = True

    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
    ) -> None:
        super().__init__(cluster, options, topics, listener)
        member_id = str(UUID(int=cluster.runtime.random.getrandbits(128), version=4))
        self._state = MemberState(options, member_id, self._topics)
        self._identity = self._identity._replace(member_id=member_id)
        self._target_s = 0.0
        self._responses_count = 0
        self._stale: tuple[GroupIdentity, int] | None = None
        self._is_leaving = False

    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""
        self._topics = frozenset(topics)
        self._state.topics = sorted(self._topics)
        self._heartbeat_due.notify()

    async def application_error(self, error: BrokerRefused, sent_identity: GroupIdentity) -> ClientError:
        """See ``Committer``."""
        is_removed = error_action(error) in (ErrorAction.OUTDATED, ErrorAction.UNKNOWN)
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH and not is_removed:
            return error
        self._heartbeat_due.notify()
        if sent_identity is not self._identity:
            return RebalanceUnderWay(str(error))
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            if self._stale is None or self._stale[0] is not sent_identity:
                self._stale = sent_identity, self._responses_count
            if self._responses_count < self._stale[1] + RESPONSES_MIN:
                return RebalanceUnderWay(str(error))  # the response with the new epoch has not arrived yet
        return CommitFailed(str(error))

    # --- reconciliation ---

    async def _run(self) -> None:
        at_most_s: float | None = None
        while not self._is_stopping:
            await self._changed.wait(at_most_s)
            if not self._is_stopping:
                at_most_s = None if await self._reconcile() else UNKNOWN_TOPIC_WAIT_S
        await self._release(self._assignment, self._reactor.seconds() + self._options.rebalance_timeout_s)
        await self._leave()

    async def _reconcile(self) -> bool:
        """Release partitions that are not in the target assignment and acquire those that are.

        :return: True if the assignment is as close to the target as possible.
        """
        state, target = self._state, self._state.target
        if target is None:
            return True
        target_owned, is_complete = state.target_by_name(self._cluster.view.topics)
        if not is_complete:
            target_owned, is_complete = await self._refresh_names()
        to_release = state.to_release(target_owned)
        if to_release and state.target is target:
            await self._release(to_release, self._target_s + self._options.rebalance_timeout_s)
            state.remove_owned(to_release - self._assignment)
            self._heartbeat_due.notify()
        if state.target is not target:  # the target changed or was lost in the meantime
            self._changed.notify()
            return True
        if target_owned.keys() - state.owned.keys():
            state.add_owned(target_owned)
            self._heartbeat_due.notify()
            await self._assign(frozenset(target_owned))
        self._signal_joined()
        return is_complete

    async def _refresh_names(self) -> tuple[Any, bool]:
        try:
            await self._cluster.refresh(self._topics)
        except ClientError:
            pass  # retried later
        return self._state.target_by_name(self._cluster.view.topics)

    async def _leave(self) -> None:
        self._is_leaving = True
        if self._state.epoch != JOINING or self._responses_count > 0:
            await self._send_leave(CONSUMER_GROUP_HEARTBEAT, self._state.leave_body())

    def _interrupt(self) -> None:
        """Do nothing: this protocol has no long requests."""

    def _reset_identity(self) -> None:
        self._state.reset()
        self._identity = self._identity._replace(generation=NO_GENERATION)
        self._heartbeat_due.notify()

    # --- heartbeats ---

    def _background(self) -> list[Coroutine[Deferred[Any], Any, None]]:
        return [self._send_heartbeats()]

    async def _send_heartbeats(self) -> None:
        wait_s, failures = 0.0, 0
        while not self._is_leaving:
            await self._heartbeat_due.wait(wait_s)
            if self._is_stopping and self._state.epoch == JOINING:
                return
            sent_s = self._reactor.seconds()
            try:
                await self._heartbeat()
            except ClientError as error:
                failures += 1
                options = self._cluster.options
                wait_s = backoff_s(
                    self._cluster.runtime.random, failures, options.backoff_s, options.backoff_s_max
                )
                try:
                    self._check_patience(error, sent_s)
                except ClientError as final:
                    self._fail(final)
            else:
                wait_s, failures = self._state.interval_s, 0

    async def _heartbeat(self) -> None:
        """Send a heartbeat and process its response.

        :raise ClientError: no response was received.
        """
        state, identity, sent_s = self._state, self._identity, self._reactor.seconds()
        request_body = state.request_body()
        try:
            response = await self._coordinator.request(
                CONSUMER_GROUP_HEARTBEAT, request_body, timeout_s=self._options.session_timeout_s / 2
            )
        except ClientError as error:
            if identity is self._identity and not self._is_leaving:
                state.reset_acknowledged()
                self._handle_error(error)
            return
        if identity is not self._identity or self._is_leaving:
            return
        if self._session.is_stale(sent_s):
            state.reset_acknowledged()
            raise RequestTimedOut(f"group {self._group}: a response arrived after the session had expired")
        self._responses_count += 1
        self._session.record_contact(sent_s)
        has_target = state.process_response(request_body, response)
        current = (state.member_id, state.epoch)
        if current != (identity.member_id, identity.generation):
            self._identity = identity._replace(member_id=state.member_id, generation=state.epoch)
        if has_target:
            self._target_s = sent_s
            self._changed.notify()
            self._listener_calls.limit(sent_s + self._options.rebalance_timeout_s)

    def _handle_error(self, error: ClientError) -> None:
        action = error_action(error)
        is_new = self._state.epoch == JOINING
        code = error.code if isinstance(error, BrokerRefused) else None
        if code is ErrorCode.GROUP_ID_NOT_FOUND and not is_new:
            action = ErrorAction.UNKNOWN
        if code is ErrorCode.UNRELEASED_INSTANCE_ID and not self._has_begun:
            action = ErrorAction.WAIT  # the previous instance has crashed, and its session will expire
        if action is ErrorAction.FINAL:
            self._fail(error)
        elif action in (ErrorAction.OUTDATED, ErrorAction.UNKNOWN) and not is_new:
            self._lose_partitions(str(error))
        else:
            raise error
