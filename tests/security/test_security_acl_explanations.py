"""Explanations of authorization decisions."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.interfaces import Operation, Principal, Resource
from kreplica.interfaces import ResourceType as PluginResourceType
from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from kreplica.security.acls.authorizer import AclAuthorizer
from kreplica.security.acls.explanation import Reason, explain
from kreplica.security.acls.rules import AclRules

READ, DESCRIBE, ALL = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

CASES: list[tuple[list[Any], AclOperation, str, bool, Reason]] = [
    ([], READ, "User:a", False, Reason.NO_ACL),
    ([], READ, "User:root", True, Reason.SUPER_USER),
    ([("t", LITERAL, Acl("User:a", "*", READ, ALLOW))], READ, "User:a", True, Reason.ALLOWED_BY_ACL),
    ([("t", LITERAL, Acl("User:a", "*", READ, ALLOW))], DESCRIBE, "User:a", True, Reason.ALLOWED_BY_ACL),
    ([("t", LITERAL, Acl("User:a", "*", READ, ALLOW))], READ, "User:b", False, Reason.NO_ALLOWING_ACL),
    ([("t", LITERAL, Acl("User:a", "10.0.0.1", READ, ALLOW))], READ, "User:a", False, Reason.NO_ALLOWING_ACL),
    ([("", PREFIXED, Acl("User:*", "*", ALL, ALLOW))], READ, "User:b", True, Reason.ALLOWED_BY_ACL),
    (
        [("*", LITERAL, Acl("User:a", "*", ALL, DENY)), ("t", LITERAL, Acl("User:a", "*", READ, ALLOW))],
        READ,
        "User:a",
        False,
        Reason.DENIED_BY_ACL,
    ),
    ([("t", LITERAL, Acl("User:a", "*", READ, DENY))], DESCRIBE, "User:a", False, Reason.NO_ALLOWING_ACL),
]


@pytest.mark.parametrize(("acls", "operation", "user", "allowed", "reason"), CASES)
def test_explanation_is_that_of_the_authorizer(
    acls: list[Any], operation: AclOperation, user: str, allowed: bool, reason: Reason
) -> None:
    """An explanation contains the reason, and always agrees with the decision."""
    rules = AclRules()
    rules.replace({ResourcePattern(ResourceType.TOPIC, name, kind): frozenset({acl}) for name, kind, acl in acls})
    authorizer = AclAuthorizer(rules, ["User:root"], lambda: 0.0, allow_without_acls=False)
    decision = explain(authorizer, user, "10.0.0.9", operation, ResourceType.TOPIC, "t")
    assert (decision.is_allowed, decision.reason) == (allowed, reason)
    assert (decision.binding is None) == (reason not in (Reason.ALLOWED_BY_ACL, Reason.DENIED_BY_ACL))
    principal = Principal(user, "10.0.0.9", "L", None)
    resource = Resource(PluginResourceType.TOPIC, "t")
    assert authorizer.is_allowed(principal, Operation[operation.name], resource) == allowed
