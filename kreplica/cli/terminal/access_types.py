"""Click parameter types of access control: operations and resources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic in older versions of click

OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
)
RESOURCE_TYPES = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user")
CLUSTER_NAME = "kafka-cluster"


class Operation(ParameterType):
    """An operation in any of its spellings: ``DescribeConfigs``, ``describe_configs``, ``describe-configs``."""

    name = "operation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).replace("-", "_").lower()
        if words not in OPERATIONS:
            names = ", ".join("".join(part.capitalize() for part in name.split("_")) for name in OPERATIONS)
            self.fail(f"{value!r}: expected one of {names}", param, ctx)
        return words


class Operations(ParameterType):
    """Operations separated by commas: ``Read,Write``."""

    name = "operations"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        return list(dict.fromkeys(Operation().convert(part.strip(), param, ctx) for part in value.split(",")))


class NamedResource(NamedTuple):
    """A type of resource and a name."""

    type: str
    name: str


class ResourceName(ParameterType):
    """A resource: a topic, ``TYPE:NAME`` or ``cluster``."""

    name = "resource"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamedResource:
        if isinstance(value, NamedResource):
            return value
        kind, colon, name = value.partition(":")
        kind = kind.replace("-", "_").lower()
        if not colon:
            return NamedResource("cluster", CLUSTER_NAME) if kind == "cluster" else NamedResource("topic", value)
        if kind not in RESOURCE_TYPES or not name:
            types = ", ".join(f"{each.replace('_', '-')}:NAME" for each in RESOURCE_TYPES if each != "cluster")
            self.fail(f"{value!r}: expected a topic, cluster, or one of {types}", param, ctx)
        return NamedResource(kind, name)


class PrincipalName(ParameterType):
    """A principal such as ``User:alice``."""

    name = "principal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ":" not in value:
            self.fail(f"{value!r}: expected a type and a name, such as User:{value}", param, ctx)
        return str(value)
