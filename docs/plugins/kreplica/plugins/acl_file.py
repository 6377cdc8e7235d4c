"""Authorizer that reads its rules from a file.

kreplica.authorizer=acl-file
kreplica.plugin.acl-file.path=/etc/kreplica/acl

Each line allows operations on a resource; everything else is denied::

    # host       operations                  resource
    10.0.0.*     *                           *               # brokers and administrators
    *            read,describe               topic:public-*
    *            describe,read               group:*
    10.1.0.7     write,create,describe       topic:orders

The host is an IP address.  Operations have Kafka's names.  A resource is ``cluster``, or ``topic:``, ``group:`` or
``transactional_id:`` followed by a name.  A ``*`` at the end matches any suffix.  The file is read once, at broker
startup.  Allow brokers all operations: they need ``cluster_action`` on ``cluster``, and the operations of their
coordinators.
"""

from __future__ import annotations

from typing import NamedTuple

from zope.interface import implementer

from kreplica.interfaces import IAuthorizer, Operation, Plugin, PluginContext, Principal, Resource, ResourceType

acl_file = Plugin(
    "acl-file",
    IAuthorizer,
    "kreplica.plugins.acl_file:AclFile",
    "Authorizes requests by the rules in a file.",
    {"path": "The path of the rules file."},
)


class Rule(NamedTuple):
    """One line of the file.

    :param operations: empty for all operations.
    """

    host: str
    operations: frozenset[Operation]
    resource: str

    def allows(self, host: str, operation: Operation, resource: str) -> bool:
        return (
            (not self.operations or operation in self.operations)
            and _fits(self.resource, resource)
            and _fits(self.host, host)
        )


@implementer(IAuthorizer)
class AclFile:
    """Denies every request that no rule allows."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: the file does not exist or has an invalid line."""
        path = context.settings.get("path", "")
        try:
            text = context.runtime.disk.read_file(path).decode()
        except OSError as error:
            raise ValueError(f"path: {path!r} cannot be read: {error}") from error
        lines = enumerate(text.splitlines(), 1)
        self._rules = [_rule(words, f"{path}, line {n}") for n, line in lines if (words := line.split("#")[0].split())]

    def is_allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if resource.type is ResourceType.CLUSTER:
            name = "cluster"
        else:
            name = f"{resource.type.value}:{resource.name}"
        return any(rule.allows(principal.host, operation, name) for rule in self._rules)


def _rule(words: list[str], place: str) -> Rule:
    if len(words) < 3:
        raise ValueError(f"{place}: HOST OPERATIONS RESOURCE is expected")
    host, operations, resource = words[:3]
    known = {operation.value: operation for operation in Operation}
    unknown = [name for name in operations.split(",") if name != "*" and name not in known]
    if unknown:
        raise ValueError(f"{place}: there is no operation {unknown[0]!r}; there are: {', '.join(known)}")
    kinds = tuple(f"{kind.value}:" for kind in ResourceType)
    if resource not in ("*", "cluster") and not resource.startswith(kinds):
        raise ValueError(f"{place}: {resource!r} is neither cluster nor TYPE:NAME with {', '.join(kinds)}")
    names = [] if operations == "*" else operations.split(",")
    return Rule(host, frozenset(known[name] for name in names), resource)


def _fits(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
