"""Lists the groups of all coordinators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedMetadata
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode
from kreplica.runtime.gather import gather
from kreplica.wire.messages import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS

REQUEST_TIMEOUT_S = 3.0
"""Timeout of each broker; a broker that does not respond is reported."""

COUNTED_MAX = 500
"""Maximum number of groups per page whose members are counted."""

CONSUMER = "consumer"


class ListedGroup(NamedTuple):
    """A group in a list."""

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


class GroupLists:
    """Requests lists from all brokers in parallel."""

    def __init__(self, published: PublishedMetadata, connections: BrokerConnections) -> None:
        self._published = published
        self._connections = connections

    async def all(self) -> tuple[list[ListedGroup], list[str]]:
        """Return the groups sorted by name, and a sentence for each broker that did not respond."""
        problems: list[str] = []
        lists = await gather(self._of(broker_id, problems) for broker_id in sorted(self._published.brokers))
        by_name = {group.group: group for groups in lists for group in groups}
        return [by_name[name] for name in sorted(by_name)], sorted(problems)

    async def _of(self, broker_id: int, problems: list[str]) -> list[ListedGroup]:
        body: dict[str, Any] = {"states_filter": [], "types_filter": []}
        try:
            response = await self._connections.request(broker_id, LIST_GROUPS, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError as error:
            problems.append(f"broker {broker_id} did not list its groups: {error}")
            return []
        if response["error_code"]:
            code = ErrorCode.of(response["error_code"])
            problems.append(f"broker {broker_id} did not list all of its groups: {code.name}")
        return [
            ListedGroup(
                row["group_id"],
                row["group_type"].lower(),
                row["protocol_type"],
                row["group_state"],
                broker_id,
            )
            for row in response["groups"]
        ]

    async def members(self, groups: Iterable[ListedGroup]) -> dict[str, int]:
        """Return the number of members by group, without groups whose coordinator did not respond."""
        by_coordinator: dict[tuple[int, bool], list[str]] = {}
        for group in list(groups)[:COUNTED_MAX]:
            by_coordinator.setdefault((group.coordinator, group.type == CONSUMER), []).append(group.group)
        counted = await gather(self._count(*key, names) for key, names in by_coordinator.items())
        return {name: count for counts in counted for name, count in counts.items()}

    async def _count(self, broker_id: int, uses_consumer_protocol: bool, names: list[str]) -> dict[str, int]:
        api = CONSUMER_GROUP_DESCRIBE if uses_consumer_protocol else DESCRIBE_GROUPS
        body: dict[str, Any] = {"group_ids": names, "groups": names, "include_authorized_operations": False}
        try:
            response = await self._connections.request(broker_id, api, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError:
            return {}
        return {row["group_id"]: len(row["members"]) for row in response["groups"] if not row["error_code"]}
