"""Checks that every operation of a principal was allowed, and that changes of permissions take effect.

A change takes effect on a broker as soon as the broker has applied it. Rules:

* A request that a broker receives after a change has taken effect succeeds only if the principal still has the
  permission. A request that it received earlier may complete, such as a fetch that waits for records.
* An authentication that starts after a password was changed, or its user deleted, succeeds only with the new password.
* A session that has expired serves no request before the client has authenticated again.
* A broker applies changes in the order of ZooKeeper, and never returns to an older value.
* A broker that can reach ZooKeeper applies a change within ``applied_s_max`` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kreplica.security.acls.acl import WILDCARD, Acl, AclOperation, PatternType, Permission, ResourcePattern
from kreplica.security.sasl.scram import ScramCredential
from kreplica.service.composition.broker import Broker
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.invariants import InvariantViolation
from kreplica.testing.cluster.state import znode
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.storms.security.observed_connections import Exchange
from kreplica.testing.storms.security.rights import Right, used_rights
from kreplica.testing.storms.security.tracked import Source, TrackedValue, acls_of
from kreplica.testing.storms.security.users import User
from kreplica.wire import messages
from kreplica.zookeeper import SessionState

POLL_S = 0.25

_BEFORE_AUTHENTICATION = frozenset(
    {messages.API_VERSIONS.key, messages.SASL_HANDSHAKE.key, messages.SASL_AUTHENTICATE.key}
)


class _AppliedValues:
    """The values that the process of a broker used after its last event."""

    def __init__(self, program: Broker, readers: list[Callable[[], Any]]) -> None:
        self.program = program
        self.readers = readers
        self.values: list[Any] = []


class AccessCheck:
    """Observes brokers, ZooKeeper and clients; raises ``InvariantViolation`` after the event that broke a rule.

    :param patterns: all resource patterns that may have ACLs.
    :param users: all users that may have passwords.
    :param sources: sources of other data whose changes must take effect.
    :param applied_s_max: longest time until a broker that can reach ZooKeeper applies a change; None for no limit.
    :ivar used: number of observed successful uses of permissions.
    :ivar logins: number of observed successful authentications.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        patterns: Iterable[ResourcePattern],
        users: Sequence[User],
        sources: Iterable[Source],
        applied_s_max: float | None,
    ) -> None:
        self.used = self.logins = 0
        self._cluster = cluster
        brokers = list(cluster.brokers)
        self._acls = {pattern: TrackedValue(acls_of(pattern), brokers) for pattern in patterns}
        self._credentials = {user.name: TrackedValue(user.credentials_in_zookeeper(), brokers) for user in users}
        self._users = {user.name: user for user in users}
        tracked = [TrackedValue(source, brokers) for source in sources]
        self._tracked = [*self._acls.values(), *self._credentials.values(), *tracked]
        self._applied_s_max = applied_s_max
        self._broker_ids = {machine.host.name: number for number, machine in cluster.brokers.items()}
        self._applied: dict[int, _AppliedValues] = {}
        self._topic_names: dict[UUID, str] = {}
        self._violations: list[str] = []
        self._reachable_since_s = dict.fromkeys(brokers, 0.0)
        self._polled_s = 0.0
        self._observe_zookeeper(cluster.simulation.now_s)

    # --- observation -------------------------------------------------------------------------------------------------

    def after_event(self, process: Process) -> None:
        """Observe the process that handled an event; no other process can have changed.

        :raise InvariantViolation: a rule is broken.
        """
        now_s = self._cluster.simulation.now_s
        broker = self._broker_ids.get(process.host)
        if broker is not None:
            self._observe_broker(broker, now_s)
        elif process.host in self._cluster.zookeeper_hosts:
            self._observe_zookeeper(now_s)
        if now_s - self._polled_s >= POLL_S:
            self._polled_s = now_s
            self._check_progress(now_s)
        if self._violations:
            raise InvariantViolation(self._violations[0])

    def _observe_zookeeper(self, now_s: float) -> None:
        machine = self._cluster.zookeeper
        if not machine.running or machine.program.serving is None:
            return
        for tracked in self._tracked:
            node = znode(self._cluster, tracked.source.path)
            tracked.written(now_s, None if node is None else node.data)

    def _observe_broker(self, broker: int, now_s: float) -> None:
        program = self._program(broker)
        if program is None:
            return
        applied = self._applied.get(broker)
        if applied is None or applied.program is not program:
            readers = [tracked.source.reader(program) for tracked in self._tracked]
            applied = self._applied[broker] = _AppliedValues(program, readers)
            for tracked in self._tracked:
                tracked.restarted(broker)
        values = [read() for read in applied.readers]
        if values == applied.values:
            return
        applied.values = values
        for tracked, value in zip(self._tracked, values, strict=True):
            violation = tracked.check(broker, value, now_s)
            if violation is not None:
                self._violations.append(violation)

    def _program(self, broker: int) -> Broker | None:
        """Return the program of a broker that has read the access control data; None if it does not serve clients."""
        machine = self._cluster.brokers[broker]
        return machine.program if machine.running and machine.program.server is not None else None

    # --- changes take effect ------------------------------------------------------------------------------------------

    def _check_progress(self, now_s: float) -> None:
        if self._applied_s_max is None:
            return
        for broker in self._cluster.brokers:
            if not self._reaches_zookeeper(broker):
                self._reachable_since_s[broker] = now_s
                continue
            for tracked in self._tracked:
                late_s = tracked.differs_for_s(broker, now_s, self._reachable_since_s[broker])
                if late_s > self._applied_s_max:
                    self._violations.append(
                        f"broker {broker} has not applied {tracked.source.label} for {late_s:.1f} s: it uses "
                        f"{tracked.applied[broker].last!r}, not {tracked.in_zookeeper.last!r}"
                    )

    def _reaches_zookeeper(self, broker: int) -> bool:
        cluster = self._cluster
        program, machine, network = self._program(broker), cluster.brokers[broker], cluster.simulation.network
        zookeeper = cluster.zookeeper
        if program is None or machine.host.is_paused or program.client.state is not SessionState.CONNECTED:
            return False
        if not zookeeper.running or zookeeper.program.serving is None:
            return False
        for name in cluster.zookeeper_hosts:
            if cluster.host(name).is_paused:
                return False
            for link in (network.link(name, machine.host.name), network.link(machine.host.name, name)):
                if link.cut or link.bytes_per_s is not None or link.latency_s != network.latency_s:
                    return False
        return True

    def lags(self) -> list[str]:
        """Return a sentence for each broker and piece of data that differs from ZooKeeper."""
        return [
            f"broker {broker} uses {timeline.last!r} of {tracked.source.label}, not {tracked.in_zookeeper.last!r}"
            for tracked in self._tracked
            for broker, timeline in tracked.applied.items()
            if tracked.in_zookeeper.values and timeline.last != tracked.in_zookeeper.last
        ]

    def acls_of(self, pattern: ResourcePattern) -> frozenset[Acl]:
        """Return the ACLs of a pattern in ZooKeeper."""
        acls: frozenset[Acl] = self._acls[pattern].in_zookeeper.last
        return acls

    def credentials_of(self, user: User) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user in ZooKeeper."""
        credentials: Mapping[str, ScramCredential] = self._credentials[user.name].in_zookeeper.last
        return credentials

    # --- clients -----------------------------------------------------------------------------------------------------

    def completed(self, exchange: Exchange) -> None:
        """Check one request of a client, and its response."""
        login, key = exchange.login, exchange.api.key
        if key == messages.SASL_HANDSHAKE.key:
            login.started_s = exchange.sent_s
        elif key == messages.SASL_AUTHENTICATE.key:
            if not exchange.response["error_code"] and exchange.response["session_lifetime_ms"]:
                self._authenticated(exchange)
        elif key not in _BEFORE_AUTHENTICATION:
            self._check_session(exchange)
            self._check_rights(exchange)
            if key == messages.METADATA.key:
                rows = exchange.response["topics"]
                self._topic_names |= {row["topic_id"]: row["name"] for row in rows if "topic_id" in row}

    def _authenticated(self, exchange: Exchange) -> None:
        login, broker = exchange.login, self._broker_ids[exchange.login.host]
        user, password = login.credentials.user, login.credentials.password
        self.logins += 1
        login.expires_s = exchange.received_s + exchange.response["session_lifetime_ms"] / 1000
        account = self._users[user]
        accepted = [
            account.password_of(credentials.get(login.credentials.mechanism))
            for credentials in self._credentials[user].applied[broker].during(login.started_s, exchange.received_s)
        ]
        if password not in accepted:
            self._violations.append(
                f"broker {broker} authenticated {user} between {login.started_s:.3f} s and {exchange.received_s:.3f} s "
                f"with {account.label_of(password)}, but accepts only "
                f"{', '.join(account.label_of(candidate) for candidate in accepted)}"
            )

    def _check_session(self, exchange: Exchange) -> None:
        login = exchange.login
        if login.expires_s is None:
            self._violations.append(f"{login.host} served {exchange.api.name} to a client that is not authenticated")
        elif exchange.sent_s > login.expires_s:
            self._violations.append(
                f"{login.host} served {exchange.api.name} to {login.credentials.user} at {exchange.sent_s:.3f} s, but "
                f"the session expired at {login.expires_s:.3f} s"
            )

    def _check_rights(self, exchange: Exchange) -> None:
        broker, user = self._broker_ids[exchange.login.host], exchange.login.credentials.user
        for right in used_rights(exchange.api.key, exchange.request, exchange.response, self._topic_names):
            self.used += 1
            if not self._was_allowed(broker, f"User:{user}", right, exchange.sent_s, exchange.received_s):
                self._violations.append(
                    f"broker {broker} let {user} {right} with {exchange.api.name} between {exchange.sent_s:.3f} s and "
                    f"{exchange.received_s:.3f} s, but no ACL allowed it"
                )

    def _was_allowed(self, broker: int, principal: str, right: Right, begin_s: float, end_s: float) -> bool:
        """Return True if the ACLs that a broker had applied allowed an operation at some moment."""
        timelines = [
            tracked.applied[broker]
            for pattern, tracked in self._acls.items()
            if pattern.type is right.type and _selects(pattern, right.name)
        ]
        times = [begin_s, *(time_s for timeline in timelines for time_s in timeline.changes(begin_s, end_s))]
        states = ([acl for timeline in timelines for acl in timeline.at(time_s, frozenset())] for time_s in times)
        return any(_allows(acls, principal, right.operation) for acls in states)


def _selects(pattern: ResourcePattern, name: str) -> bool:
    if pattern.pattern is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def _allows(acls: Iterable[Acl], principal: str, operation: AclOperation) -> bool:
    """Return True if ACLs allow an operation; does not use the authorizer, whose decisions it checks."""
    permissions = {
        acl.permission
        for acl in acls
        if acl.principal in (principal, "User:*") and acl.operation in (operation, AclOperation.ALL)
    }
    return permissions == {Permission.ALLOW}
