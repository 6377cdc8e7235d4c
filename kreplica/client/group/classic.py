"""Member of a classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests.

Eager members release all partitions before they rejoin.  Cooperative members (KIP-429) keep their partitions, release
those that are assigned to other members, and then rejoin.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.cluster import Cluster
from kreplica.client.group.assignors import by_names
from kreplica.client.group.error_actions import ErrorAction, error_action
from kreplica.client.group.group_leader import GroupLeader
from kreplica.client.group.member import GroupMember
from kreplica.client.group.membership import AssignmentListener
from kreplica.client.group.options import GroupOptions
from kreplica.client.group.subscription import PROTOCOL_TYPE, parse_assignment, protocols
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    RebalanceUnderWay,
    RequestTimedOut,
    check,
)
from kreplica.client_core.offsets import NO_GENERATION, GroupIdentity
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.wire.messages import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

NO_MEMBER_ID = ""


class ClassicMember(GroupMember):
    """A ``Membership`` of a classic group."""

    def __init__(
        self, cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
    ) -> None:
        super().__init__(cluster, options, topics, listener)
        self._assignors = by_names(options.assignors)
        self._is_cooperative = all(each.is_cooperative for each in self._assignors)
        self._group_leader = GroupLeader(cluster, self._assignors, options.heartbeat_interval_s, self._request_rejoin)
        self._rejoin_reason: str | None = None
        self._is_joining = False
        self._last_assignment: tuple[frozenset[TopicPartition], int] = frozenset(), NO_GENERATION
        self._stable_s = 0.0

    def subscribe(self, topics: Iterable[str]) -> None:
        """See ``Membership``."""
        subscribed = frozenset(topics)
        if subscribed != self._topics:
            self._topics = subscribed
            self._request_rejoin("the subscription changed")

    async def application_error(self, error: BrokerRefused, sent_identity: GroupIdentity) -> ClientError:
        """See ``Committer``."""
        action = error_action(error)
        if action is ErrorAction.REJOIN:
            return RebalanceUnderWay(str(error))
        if action in (ErrorAction.OUTDATED, ErrorAction.UNKNOWN) or error.code is ErrorCode.FENCED_INSTANCE_ID:
            if self._is_joining or sent_identity is not self._identity:
                return RebalanceUnderWay(str(error))
            self._heartbeat_due.notify()  # the next heartbeat fails with the same error, which is then handled
            return CommitFailed(str(error))
        return error

    # --- rebalances ---

    async def _run(self) -> None:
        while not self._is_stopping:
            subscribed = self._topics
            kept = frozenset(each for each in self._assignment if self._is_cooperative and each.topic in subscribed)
            await self._release(self._assignment - kept, self._stable_s + self._options.rebalance_timeout_s)
            assigned = await self._join_group()
            if assigned is not None:
                await self._change_assignment(assigned)
                self._signal_joined()
            while not (self._is_stopping or self._rejoin_reason):
                await self._changed.wait()
        await self._release(self._assignment, self._stable_s + self._options.rebalance_timeout_s)
        await self._leave()

    async def _change_assignment(self, assigned: frozenset[TopicPartition]) -> None:
        """Release and acquire partitions to reach the new assignment."""
        revoked, identity = self._assignment - assigned, self._identity
        if revoked:
            await self._release(revoked, self._stable_s + self._options.rebalance_timeout_s)
        if identity is self._identity:
            await self._assign(assigned)
            if revoked:
                self._request_rejoin("partitions were released")

    async def _join_group(self) -> frozenset[TopicPartition] | None:
        """Join the group, retrying after errors.

        :return: the assignment; None if the membership is stopping.
        :raise ClientError: the group rejects the member.
        """
        attempts = 0
        self._is_joining = True
        while not self._is_stopping:
            sent_s = self._reactor.seconds()
            try:
                assigned = await self._join_once()
            except ClientError as error:
                self._check_patience(error, sent_s)
                wait_s = self._handle_join_error(error, attempts)
            else:
                self._is_joining = False
                return assigned
            attempts += 1
            if wait_s > 0 and not self._is_stopping:
                await pause(self._reactor, wait_s)
        self._is_joining = False
        return None

    def _handle_join_error(self, error: ClientError, attempts: int) -> float:
        """Process an error that occurred while joining.

        :return: delay before the next attempt, in seconds.
        :raise ClientError: the error is final.
        """
        action = error_action(error)
        if action is ErrorAction.FINAL:
            raise error
        self._coordinator.process_error(error)
        if action is ErrorAction.UNKNOWN:
            self._identity = self._identity._replace(member_id=NO_MEMBER_ID)
        if action in (ErrorAction.UNKNOWN, ErrorAction.OUTDATED):
            self._lose_partitions(str(error))
        options = self._cluster.options
        if attempts == 0 and action in (ErrorAction.UNKNOWN, ErrorAction.OUTDATED, ErrorAction.REJOIN):
            return 0.0
        return backoff_s(self._cluster.runtime.random, attempts + 1, options.backoff_s, options.backoff_s_max)

    async def _join_once(self) -> frozenset[TopicPartition]:
        reason, self._rejoin_reason = self._rejoin_reason, None
        self._group_leader.end()
        joined = await self._join(reason or "new member")
        if joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            self._identity = self._identity._replace(member_id=joined["member_id"])
            joined = await self._join("member id assigned")
        check(joined, f"joining group {self._group}")
        self._identity = self._identity._replace(member_id=joined["member_id"], generation=joined["generation_id"])
        return await self._sync(joined)

    async def _join(self, reason: str) -> dict[str, Any]:
        options, identity = self._options, self._identity
        owned = self._assignment if self._is_cooperative else frozenset()
        body = {
            "group_id": self._group,
            "session_timeout_ms": round(options.session_timeout_s * 1000),
            "rebalance_timeout_ms": round(options.rebalance_timeout_s * 1000),
            "member_id": identity.member_id,
            "group_instance_id": options.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols(self._assignors, self._topics, owned, self._last_assignment, options.rack),
            "reason": reason,
        }
        return await self._coordinator.request_long(JOIN_GROUP, body, timeout_s=self._join_timeout_s)

    async def _sync(self, joined: dict[str, Any]) -> frozenset[TopicPartition]:
        identity = self._identity
        rows = await self._group_leader.begin(joined) if joined["leader"] == identity.member_id else []
        body = {
            **self._member_fields(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": joined["protocol_name"],
            "assignments": rows,
        }
        sent_s = self._reactor.seconds()
        response = await self._coordinator.request_long(SYNC_GROUP, body, timeout_s=self._join_timeout_s)
        check(response, f"assignment in group {self._group}")
        if self._session.is_stale(sent_s):
            raise RequestTimedOut(f"group {self._group}: an assignment arrived after the session had expired")
        assigned = parse_assignment(bytes(response["assignment"]))
        self._last_assignment = assigned, identity.generation
        self._record_stable(sent_s)
        return assigned

    async def _leave(self) -> None:
        identity = self._identity
        if identity.member_id == NO_MEMBER_ID or identity.instance_id is not None:
            return
        member = {"member_id": identity.member_id, "group_instance_id": None, "reason": "the consumer is closed"}
        await self._send_leave(LEAVE_GROUP, {"group_id": self._group, **member, "members": [member]})

    @property
    def _join_timeout_s(self) -> float:
        """Maximum time for a rebalance and the response to it."""
        return self._options.rebalance_timeout_s + self._cluster.options.request_timeout_s

    def _request_rejoin(self, reason: str) -> None:
        self._rejoin_reason = self._rejoin_reason or reason
        self._changed.notify()

    def _interrupt(self) -> None:
        if self._is_joining:
            self._coordinator.abort_joining()

    def _reset_identity(self) -> None:
        self._identity = self._identity._replace(generation=NO_GENERATION)
        self._group_leader.end()
        self._request_rejoin("the member was removed from the group")

    # --- heartbeats ---

    def _background(self) -> list[Coroutine[Deferred[Any], Any, None]]:
        return [self._send_heartbeats(), self._group_leader.watch()]

    async def _send_heartbeats(self) -> None:
        wait_s, failures = self._options.heartbeat_interval_s, 0
        while True:
            await self._heartbeat_due.wait(wait_s)
            wait_s = self._options.heartbeat_interval_s
            try:
                if self._identity.generation != NO_GENERATION:
                    await self._heartbeat()
                elif self._is_joining:
                    await self._coordinator.look_up()
            except ClientError:
                failures += 1
                options = self._cluster.options
                quick_s = backoff_s(
                    self._cluster.runtime.random, failures, options.backoff_s, options.backoff_s_max
                )
                wait_s = min(wait_s, quick_s)
            else:
                failures = 0

    async def _heartbeat(self) -> None:
        """Send a heartbeat and process its response.

        :raise ClientError: no response was received.
        """
        identity, sent_s = self._identity, self._reactor.seconds()
        try:
            timeout_s = self._options.session_timeout_s / 2
            await self._coordinator.request(HEARTBEAT, self._member_fields(), timeout_s=timeout_s)
        except ClientError as error:
            if identity is self._identity and not self._is_over:
                self._handle_error(error, sent_s)
            return
        if identity is self._identity:
            self._record_stable(sent_s)

    def _handle_error(self, error: ClientError, sent_s: float) -> None:
        action = error_action(error)
        if action is ErrorAction.REJOIN:
            self._session.record_contact(sent_s)
            if not self._is_joining:
                self._request_rejoin("the group is rebalancing")
                self._listener_calls.limit(self._stable_s + self._options.rebalance_timeout_s)
        elif action is ErrorAction.OUTDATED:
            if not self._is_joining:  # otherwise JoinGroup returns the error
                self._lose_partitions(str(error))
        elif action is ErrorAction.UNKNOWN:
            self._identity = self._identity._replace(member_id=NO_MEMBER_ID)
            self._interrupt()
            self._lose_partitions(str(error))
        elif action is ErrorAction.FINAL:
            self._fail(error)
        else:
            raise error

    def _record_stable(self, sent_s: float) -> None:
        """Record that the group was stable when a request was sent."""
        self._stable_s = sent_s
        self._session.record_contact(sent_s)

    def _member_fields(self) -> dict[str, Any]:
        identity = self._identity
        return {
            "group_id": identity.group_id,
            "generation_id": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id,
        }
