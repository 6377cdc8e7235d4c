"""A broker's authorizer: checks super users, then ACLs, and caches its decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.logger import Logger
from zope.interface import implementer

from kreplica.interfaces.authorization import IAuthorizer, Operation, Principal, Resource
from kreplica.interfaces.authorization import ResourceType as PluginResourceType
from kreplica.security.acls.acl import AclOperation, ResourceType
from kreplica.security.acls.rules import AclRules

log = Logger()

DECISIONS_MAX = 10_000
"""Maximum number of cached decisions; beyond it, the cache is emptied."""

DENIALS_LOGGED_PER_S = 10


@implementer(IAuthorizer)
class AclAuthorizer:
    """Authorizes requests like Kafka's ``AclAuthorizer``.

    :param super_users: principals that may do everything.
    :param allow_without_acls: ``allow.everyone.if.no.acl.found``.
    :param seconds: monotonic clock, used to limit the rate of log lines.
    """

    def __init__(
        self, rules: AclRules, super_users: Collection[str], seconds: Callable[[], float], *, allow_without_acls: bool
    ) -> None:
        self.rules = rules
        self.super_users = frozenset(super_users)
        self.allow_without_acls = allow_without_acls
        self._seconds = seconds
        self._decisions: dict[tuple[str, str, Operation, Resource], bool] = {}
        self._log_until_s = 0.0
        self._logged = 0
        self._suppressed = 0

    def forget(self) -> None:
        """Drop the cached decisions, because the ACLs have changed."""
        self._decisions.clear()

    def is_allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        key = (principal.user, principal.host, operation, resource)
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            allowed = self._decisions[key] = self._decide(principal, operation, resource)
        if not allowed:
            self._log_denial(principal, operation, resource)
        return allowed

    def is_allowed_on_any(self, principal: Principal, operation: Operation, kind: PluginResourceType) -> bool:
        """Return True if the operation is authorized on at least one resource of a type (KIP-679)."""
        if principal.user in self.super_users or self.allow_without_acls:
            return True
        acl_operation, acl_type = AclOperation[operation.name], ResourceType[kind.name]
        return self.rules.allows_on_any(principal.user, principal.host, acl_operation, acl_type)

    def _decide(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if principal.user in self.super_users:
            return True
        decision = self.rules.decide(
            principal.user,
            principal.host,
            AclOperation[operation.name],
            ResourceType[resource.type.name],
            resource.name,
        )
        return self.allow_without_acls if decision is None else decision

    def _log_denial(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        now_s = self._seconds()
        if now_s >= self._log_until_s:
            if self._suppressed:
                log.info("{count} more denials were not logged", count=self._suppressed)
            self._log_until_s, self._logged, self._suppressed = now_s + 1.0, 0, 0
        if self._logged >= DENIALS_LOGGED_PER_S:
            self._suppressed += 1
            return
        self._logged += 1
        log.info(
            "denied: {user} from {host} may not {operation} {type} {name!r}",
            user=principal.user,
            host=principal.host,
            operation=operation.value,
            type=resource.type.value,
            name=resource.name,
        )


def parse_super_users(text: str | None) -> tuple[str, ...]:
    """Parse ``User:a;User:b``.

    :raise ValueError: an entry is not a principal.
    """
    users = tuple(part.strip() for part in (text or "").split(";") if part.strip())
    for user in users:
        if ":" not in user:
            raise ValueError(f"{user!r} is not a principal such as User:alice; principals are separated by semicolons")
    return users
