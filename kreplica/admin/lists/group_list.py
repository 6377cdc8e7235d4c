"""The list of groups: columns of ListGroups, and members and lag from their coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kreplica.admin.groups.listing import GroupLists, ListedGroup
from kreplica.admin.http.api import Call, JsonResponse
from kreplica.admin.http.callers import group as group_resource
from kreplica.admin.http.callers import topic as topic_resource
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, one_of
from kreplica.admin.lists.columns import Column, Columns
from kreplica.admin.lists.pages import ValueOf, keys_with, read_page
from kreplica.admin.load.group_loads import GroupLoad, GroupLoads
from kreplica.interfaces.authorization import CLUSTER, Operation
from kreplica.runtime import Reactor

LOAD, MEMBERS = "load", "members"
"""Sources of columns: the tables of coordinators, and DescribeGroups."""

_NULL = "Null if the coordinator does not respond."

COLUMNS = Columns(
    "group",
    [
        Column("group", STRING, is_default=True),
        Column("type", {**STRING, "description": "`classic` or `consumer` (KIP-848)."}, is_default=True),
        Column("protocol_type", STRING, is_default=True),
        Column("state", STRING, is_default=True),
        Column("coordinator", BROKER_ID, is_default=True),
        Column("members", {**nullable(COUNT), "description": _NULL}, MEMBERS, is_default=True),
        Column(
            "topics",
            {**nullable(listing(STRING)), "description": f"Topics with committed offsets or subscriptions. {_NULL}"},
            LOAD,
        ),
        Column("partitions", {**nullable(COUNT), "description": f"Partitions of these topics. {_NULL}"}, LOAD),
        Column(
            "lag",
            {
                **nullable(COUNT),
                "description": "Unread records. In partitions without a committed offset, all records are unread. "
                "Null if the coordinator does not respond, or no end offset is known.",
            },
            LOAD,
        ),
        Column(
            "lag_without_commit",
            {**nullable(COUNT), "description": f"The part of `lag` in partitions without a committed offset. {_NULL}"},
            LOAD,
        ),
        Column(
            "partitions_without_commit",
            {**nullable(COUNT), "description": f"Partitions for which the group never committed an offset. {_NULL}"},
            LOAD,
        ),
        Column("last_commit_at_ms", {**nullable(TIME_MS), "description": "Null if there was no commit."}, LOAD),
        Column(
            "status",
            {
                **nullable(one_of("OK", "WARN", "STALLED", "STOPPED")),
                "description": "The worst status of a partition; STOPPED if the group has lag and no consumer. "
                f"{_NULL}",
            },
            LOAD,
        ),
    ],
)
RESPONSE = COLUMNS.page_schema(
    "groups",
    "Group",
    is_complete={**BOOLEAN, "description": "True if every broker listed its groups."},
)


class GroupList:
    """Reads pages of the list."""

    def __init__(self, reactor: Reactor, lists: GroupLists, loads: GroupLoads) -> None:
        self._reactor = reactor
        self._lists = lists
        self._loads = loads

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/groups``."""
        selection = COLUMNS.selection(call)
        groups, problems = await self._lists.all()
        by_name = {group.group: group for group in groups}
        names = await keys_with(self._reactor, by_name, _is_visible(call))
        values: dict[str, ValueOf] = {
            name: _getter(by_name, name) for name in ("group", "type", "protocol_type", "state", "coordinator")
        }
        used = (selection.sort, *(condition.column for condition in selection.conditions))
        topic = call.query["topic"]
        needs_load = selection.needs(LOAD) or MEMBERS in used or topic is not None
        if needs_load:
            load = await self._loads.all(call)
            problems = sorted({*problems, *load.problems})
            values |= _load_values(load.content.groups, call)
            if topic is not None:
                names = [name for name in names if topic in (values["topics"](name) or ())]
        else:
            values["members"] = lambda _: None
        page = await read_page(self._reactor, names, call, selection, values)
        if not needs_load and "members" in selection.fields:
            members = await self._lists.members(by_name[row["group"]] for row in page.rows)
            for row in page.rows:
                row["members"] = members.get(row["group"])
        return JsonResponse(
            {
                "groups": page.rows,
                "next": page.following,
                "total": page.total,
                "is_complete": not problems,
                "problems": problems,
            }
        )


def _is_visible(call: Call) -> Callable[[str], bool]:
    """Return a function that is True for groups that match the search and that the caller may describe."""
    search, caller = (call.query["search"] or "").casefold(), call.caller
    sees_all = caller.may(Operation.DESCRIBE, CLUSTER)

    def is_visible(name: str) -> bool:
        return search in name.casefold() and (sees_all or caller.may(Operation.DESCRIBE, group_resource(name)))

    return is_visible


def _getter(by_name: Mapping[str, ListedGroup], column: str) -> Callable[[str], Any]:
    index = ListedGroup._fields.index(column)
    return lambda name: by_name[name][index]


def _load_values(loads: Mapping[str, GroupLoad], call: Call) -> dict[str, Callable[[str], Any]]:
    def value_of(column: str) -> Callable[[str], Any]:
        index = GroupLoad._fields.index(column)

        def value(name: str) -> Any:
            found = loads.get(name)
            return None if found is None else found[index]

        return value

    def topics(name: str) -> list[str] | None:
        found = loads.get(name)
        if found is None:
            return None
        return [topic for topic in found.topics if call.caller.may(Operation.DESCRIBE, topic_resource(topic))]

    columns = (
        "members",
        "partitions",
        "lag",
        "lag_without_commit",
        "partitions_without_commit",
        "last_commit_at_ms",
        "status",
    )
    return {**{column: value_of(column) for column in columns}, "topics": topics}
