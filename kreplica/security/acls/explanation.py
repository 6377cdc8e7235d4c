"""Explains a decision of ``AclAuthorizer``: the ACL, or the rule without an ACL, that determined it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from kreplica.security.acls.acl import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kreplica.security.acls.authorizer import AclAuthorizer
from kreplica.security.acls.rules import ANY_USER, IMPLIED_BY

Binding = tuple[ResourcePattern, Acl]
"""An ACL and the resources to which it applies."""


class Reason(Enum):
    """Reasons for decisions."""

    SUPER_USER = "super_user"
    DENIED_BY_ACL = "denied_by_acl"
    ALLOWED_BY_ACL = "allowed_by_acl"
    NO_ALLOWING_ACL = "no_allowing_acl"
    NO_ACL = "no_acl"
    EVERYONE_ALLOWED = "everyone_allowed"


class Decision(NamedTuple):
    """A decision with its reason.

    :param binding: the ACL that determined the decision; None if no ACL did.
    :param applying: all ACLs that apply to the resource and the user, for any operation and address.
    """

    is_allowed: bool
    reason: Reason
    binding: Binding | None
    applying: Sequence[Binding]


def explain(
    authorizer: AclAuthorizer, user: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> Decision:
    """Return the decision of an authorizer.

    :param user: such as ``User:alice``.
    :param host: IP address of the client; ``*`` for any address, to which only ACLs for all addresses apply.
    """
    acl_filter = AclFilter(kind, name, PatternType.MATCH, None, None, AclOperation.ANY, Permission.ANY)
    found = list(authorizer.rules.select(acl_filter))
    applying = [(resource, acl) for resource, acl in found if acl.principal in (user, ANY_USER)]
    if user in authorizer.super_users:
        return Decision(True, Reason.SUPER_USER, None, applying)
    if not found:
        reason = Reason.EVERYONE_ALLOWED if authorizer.allow_without_acls else Reason.NO_ACL
        return Decision(authorizer.allow_without_acls, reason, None, applying)
    for_host = [(resource, acl) for resource, acl in applying if acl.host in (host, WILDCARD)]
    denial = _first(for_host, Permission.DENY, (operation,))
    if denial is not None:
        return Decision(False, Reason.DENIED_BY_ACL, denial, applying)
    permission = _first(for_host, Permission.ALLOW, (operation, *IMPLIED_BY.get(operation, ())))
    if permission is not None:
        return Decision(True, Reason.ALLOWED_BY_ACL, permission, applying)
    return Decision(False, Reason.NO_ALLOWING_ACL, None, applying)


def _first(found: Iterable[Binding], permission: Permission, operations: Iterable[AclOperation]) -> Binding | None:
    relevant = {AclOperation.ALL, *operations}
    matching = (each for each in found if each[1].permission is permission and each[1].operation in relevant)
    return next(matching, None)
