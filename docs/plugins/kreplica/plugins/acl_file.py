"""An authorizer with a file of rules.

kreplica.authorizer=acl-file
kreplica.plugin.acl-file.path=/etc/kreplica/acl

A line of the file allows one thing; whatever no line allows is denied::

    # who        what                        to what
    10.0.0.*     *                           *               brokers, and operators
    *            read,describe               topic:public-*
    *            describe,read               group:*
    10.1.0.7     write,create,describe       topic:orders

``who`` is an address, ``what`` operations by Kafka's names, ``to what`` topic:, group:, transactional_id: and a name,
or ``cluster``; a star at the end stands for anything.  The file is read once, when the broker starts.  Brokers need
``cluster_action`` on ``cluster``, and what their coordinators ask of each other: give them everything.
"""

from __future__ import annotations

from typing import NamedTuple

from zope.interface import implementer

from kreplica.interfaces import IAuthorizer, Operation, Plugin, PluginContext, Principal, Resource, ResourceType

acl_file = Plugin(
    "acl-file",
    IAuthorizer,
    "kreplica.plugins.acl_file:AclFile",
    "Allows what a file of rules allows.",
    {"path": "The file."},
)


class Rule(NamedTuple):
    """:param operations: none stands for all."""

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
    """What no rule allows is denied."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: there is no such file, or a line of it is no rule."""
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
