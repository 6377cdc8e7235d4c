"""Changes users, ACLs and quotas, and keeps track of the states consistent with the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.cluster.quotas import QuotaEntity
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.errors import ErrorCode, KafkaError
from kreplica.security.acls.acl import Acl, ResourcePattern
from kreplica.testing.clients.coordinator_client import first_error
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.secured_listeners import ADMINISTRATOR, SECURED_PORT, administrator_endpoint
from kreplica.testing.storms.expected_state import Expected, RequestResult
from kreplica.testing.storms.security.users import User
from kreplica.wire import messages
from kreplica.wire.messages import Api

UNKNOWN_RESULT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors of requests that may have taken effect."""

USER_ABSENT = ErrorCode.RESOURCE_NOT_FOUND
"""Error of the deletion of a user who does not exist."""

Work = Callable[[], Awaitable[object]]


class Administrator:
    """Sends each change to a random broker.

    :ivar passwords: expected password by user; None if the user is deleted.
    :ivar acls: whether an ACL is expected to exist, by pattern and ACL.
    :ivar quotas: expected quota by entity and name; None if there is none.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._pending_count = 0
        self.passwords: dict[str, Expected[str | None]] = {}
        self.acls: dict[tuple[ResourcePattern, Acl], Expected[bool]] = {}
        self.quotas: dict[tuple[QuotaEntity, str], Expected[float | None]] = {}

    @property
    def is_idle(self) -> bool:
        return self._pending_count == 0

    # --- changes -----------------------------------------------------------------------------------------------------

    def set_password(self, random: Random, user: User) -> tuple[str, Deferred[RequestResult]]:
        """Give a user, who need not exist, a new password."""
        password, row = user.new_password(random)
        expected = self.passwords.setdefault(user.name, Expected(None))
        body = {"deletions": [], "upsertions": [row]}
        return password, self._change(random, messages.ALTER_USER_SCRAM_CREDENTIALS, body, {expected: password})

    def delete_user(self, random: Random, user: User) -> Deferred[RequestResult]:
        expected = self.passwords.setdefault(user.name, Expected(None))
        body = {"deletions": [{"name": user.name, "mechanism": user.mechanism_code}], "upsertions": []}
        return self._change(random, messages.ALTER_USER_SCRAM_CREDENTIALS, body, {expected: None})

    def create_acl(self, random: Random, pattern: ResourcePattern, acl: Acl) -> Deferred[RequestResult]:
        row = {"resource_type": pattern.type, "resource_name": pattern.name, "resource_pattern_type": pattern.pattern}
        return self._change(
            random, messages.CREATE_ACLS, {"creations": [{**row, **_acl_row(acl)}]}, {self._acl(pattern, acl): True}
        )

    def delete_acl(self, random: Random, pattern: ResourcePattern, acl: Acl) -> Deferred[RequestResult]:
        row = {
            "resource_type_filter": pattern.type,
            "resource_name_filter": pattern.name,
            "pattern_type_filter": pattern.pattern,
            "principal_filter": acl.principal,
            "host_filter": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        return self._change(random, messages.DELETE_ACLS, {"filters": [row]}, {self._acl(pattern, acl): False})

    def set_quota(self, random: Random, entity: QuotaEntity, name: str, value: float | None) -> Deferred[RequestResult]:
        """Set a quota; None removes it."""
        row = {
            "entity": list(_entity_rows(entity)),
            "ops": [{"key": name, "value": value or 0.0, "remove": value is None}],
        }
        expected = self.quotas.setdefault((entity, name), Expected(None))
        return self._change(
            random, messages.ALTER_CLIENT_QUOTAS, {"entries": [row], "validate_only": False}, {expected: value}
        )

    def _acl(self, pattern: ResourcePattern, acl: Acl) -> Expected[bool]:
        return self.acls.setdefault((pattern, acl), Expected(False))

    def complete(self, change: Callable[[], Deferred[RequestResult]], timeout_s: float = 120.0) -> None:
        """Make a change, and repeat it until a broker has confirmed it."""
        until_s = self._cluster.simulation.now_s + timeout_s
        while self._cluster.run_until(change(), timeout_s) is not RequestResult.DONE:
            assert self._cluster.simulation.now_s < until_s, "an administrator's change was not confirmed"
            self._cluster.run(0.5)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _change(
        self, random: Random, api: Api, body: dict[str, Any], changes: Mapping[Expected[Any], Any]
    ) -> Deferred[RequestResult]:
        host = self._cluster.host(ADMINISTRATOR)
        broker = random.choice(sorted(self._cluster.brokers))
        endpoint = administrator_endpoint(host.runtime.random)
        client = WireClient(
            host.reactor, f"broker-{broker}", SECURED_PORT, client_id=ADMINISTRATOR, endpoint=endpoint
        )
        for state, value in changes.items():
            state.requested(value)
        self._pending_count += 1

        def completed(result: RequestResult) -> RequestResult:
            self._pending_count -= 1
            for state, value in changes.items():
                state.completed(value, result)
            return result

        return Deferred.fromCoroutine(_send(client, api, body)).addCallback(completed)


async def _send(client: WireClient, api: Api, body: dict[str, Any]) -> RequestResult:
    try:
        code = first_error(await client.request(api, body))
    except ConnectionFailed:
        result = RequestResult.REJECTED
    except (ClientError, KafkaError):
        result = RequestResult.UNKNOWN
    else:
        is_absent = code is USER_ABSENT  # a user that an earlier attempt has deleted
        result = RequestResult.DONE if not code or is_absent else RequestResult.REJECTED
        if code in UNKNOWN_RESULT:
            result = RequestResult.UNKNOWN
    await client.close()
    return result


def _acl_row(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _entity_rows(entity: QuotaEntity) -> Iterator[dict[str, Any]]:
    for kind, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name is not None:
            yield {"entity_type": kind, "entity_name": None if name == DEFAULT_ENTITY else name}
