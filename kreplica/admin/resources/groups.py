"""``/v1/groups``: groups of the cluster, their lag and offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kreplica.admin.groups.coordinators import GroupCoordinators
from kreplica.admin.groups.describing import GroupDescriptions
from kreplica.admin.groups.listing import GroupLists
from kreplica.admin.groups.resetting import OffsetResets, Target, check_no_members
from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route
from kreplica.admin.http.callers import topic as topic_resource
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    BROKER_ID,
    COUNT,
    PARTITION,
    STRING,
    TIME_MS,
    TOPIC,
    listing,
    nullable,
    one_of,
    record,
    written,
)
from kreplica.admin.lists.group_list import COLUMNS, GroupList
from kreplica.admin.lists.group_list import RESPONSE as GROUPS
from kreplica.admin.load.group_loads import GroupLoads
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.leaders import Leaders
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces.authorization import Operation
from kreplica.runtime import Runtime
from kreplica.wire.messages import DELETE_GROUPS

PATH = "/v1/groups"
ONE = f"{PATH}/{{group:path}}"

KINDS = ("earliest", "latest", "timestamp", "duration", "shift", "offset")
WITHOUT_VALUE = ("earliest", "latest")

PARTITIONS = record({"topic": TOPIC, "partitions": listing(PARTITION)})
MEMBER = record(
    {
        "member_id": STRING,
        "instance_id": nullable(STRING),
        "client_id": STRING,
        "client_host": STRING,
        "rack": nullable(STRING),
        "topics": {**listing(STRING), "description": "Subscribed topics."},
        "topic_expression": {**nullable(STRING), "description": "Regular expression of its subscription."},
        "assignment": listing(PARTITIONS),
    },
    title="GroupMember",
)
OFFSET = record(
    {
        "topic": STRING,
        "partition": PARTITION,
        "offset": COUNT,
        "leader_epoch": nullable(COUNT),
        "metadata": STRING,
    },
    title="CommittedOffset",
)
DESCRIPTION = record(
    {
        "group": STRING,
        "type": one_of("classic", "consumer"),
        "protocol_type": STRING,
        "state": STRING,
        "coordinator": nullable(BROKER_ID),
        "protocol": {**STRING, "description": "The assignment protocol of the members, or the assignor."},
        "epoch": {**nullable(COUNT), "description": "Null for a classic group."},
        "members": listing(MEMBER),
        "offsets": listing(OFFSET),
    },
    title="GroupDescription",
)
STATUS = one_of("OK", "WARN", "STALLED", "STOPPED")
_STATUS = "The worst status of a partition; STOPPED if the group has lag and no consumer."
LAG = record(
    {
        "group": STRING,
        "state": STRING,
        "status": {**STATUS, "description": _STATUS},
        "lag": {
            **nullable(COUNT),
            "description": "Sum of the known lag of all partitions, including those without a committed offset.",
        },
        "lag_without_commit": {
            **COUNT,
            "description": "The part of the lag in partitions without a committed offset: all of their records.",
        },
        "partitions_without_commit": {
            **COUNT,
            "description": "Number of partitions of the group's topics for which it never committed an offset.",
        },
        "no_commit_since_ms": {
            **nullable(TIME_MS),
            "description": "Time since which no offset was committed despite lag, in the stopped partitions "
            "or, if the group has no members, in all partitions with lag. Null without such partitions.",
        },
        "partitions": listing(
            record(
                {
                    "topic": STRING,
                    "partition": PARTITION,
                    "committed_offset": {**nullable(COUNT), "description": "Null if the group never committed one."},
                    "committed_leader_epoch": {"type": ["integer", "null"]},
                    "committed_at_ms": nullable(TIME_MS),
                    "metadata": nullable(STRING),
                    "log_end_offset": nullable(COUNT),
                    "lag": nullable(COUNT),
                    "status": {"enum": ["OK", "WARN", "STALLED", "STOPPED", None]},
                },
                title="PartitionLag",
            )
        ),
    },
    title="GroupLag",
    optional=("lag_without_commit", "partitions_without_commit", "no_commit_since_ms"),
)
PEER_LAG = PeerResponseValidator(LAG)
RESET = record(
    {
        "to": record(
            {
                "kind": one_of(*KINDS),
                "value": {
                    "type": "integer",
                    "description": "The offset for `offset`; the number of records for `shift` (negative: "
                    "backwards); milliseconds since 1970 for `timestamp`; milliseconds before now for `duration`.",
                    "minimum": -(2**62),
                    "maximum": 2**62,
                },
            },
            optional=("value",),
        ),
        "topics": {
            "type": ["object", "null"],
            "description": "Partitions by topic, or null for all partitions of a topic. If absent, all partitions "
            "of the topics for which the group has committed offsets; for `shift`, only partitions with a committed "
            "offset.",
            "maxProperties": 1000,
            "additionalProperties": nullable(listing(PARTITION, maxItems=10_000)),
        },
    },
    title="OffsetReset",
    optional=("topics",),
    examples=[{"to": {"kind": "timestamp", "value": 1_700_000_000_000}, "topics": {"orders": None}}],
)
CHANGED = {"topic": STRING, "partition": PARTITION, "before": nullable(COUNT)}
RESET_RESPONSE = written(
    {"group": STRING, "offsets": listing(record({**CHANGED, "after": COUNT}))}, title="OffsetsReset"
)
DELETION_RESPONSE = written({"group": STRING, "offsets": listing(record(CHANGED))}, title="OffsetsDeleted")

IN_GROUP = Parameter("group", {"type": "string", "minLength": 1}, "The group ID, percent-encoded.")
OF_TOPIC = Parameter("topic", TOPIC, "The topic; required.")
READERS = Parameter("topic", TOPIC, "Only groups that have committed offsets for this topic or subscribe to it.")
SEARCH = Parameter("search", {"type": "string", "maxLength": 1000}, "Only IDs that contain this text, ignoring case.")
_ABSENT = {404: "The group does not exist."}
_IN_USE = {**_ABSENT, 409: "The group has members."}

LagOf = Callable[[str], Awaitable[Mapping[str, Any]]]


class Groups:
    """Requests groups from their coordinators over Kafka's protocol, and their lag over the admin API.

    :param lag_of: returns the lag of a group coordinated here; raises NOT_COORDINATOR for other groups.
    """

    def __init__(
        self,
        runtime: Runtime,
        leaders: Leaders,
        coordinators: GroupCoordinators,
        lag_of: LagOf,
        others: OtherBrokers,
        loads: GroupLoads,
    ) -> None:
        self._coordinators = coordinators
        self._list = GroupList(runtime.reactor, GroupLists(leaders.published, leaders.connections), loads)
        self._descriptions = GroupDescriptions(coordinators)
        self._resets = OffsetResets(runtime, leaders, coordinators, self._descriptions)
        self._lag_of = lag_of
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the routes of the list, a group, its lag and its offsets."""
        return (
            Route(
                "GET",
                PATH,
                self._list.read,
                "All groups.",
                response=GROUPS,
                query=(LIMIT, AFTER, SEARCH, READERS, *COLUMNS.parameters()),
            ),
            Route(
                "GET",
                f"{ONE}/lag",
                self.lag,
                "The lag and status of a group.",
                response=LAG,
                query=(IN_GROUP,),
                problems={**_ABSENT, 421: "The group has moved to another coordinator."},
            ),
            Route(
                "POST",
                f"{ONE}/offsets",
                self.reset,
                "Reset the offsets of a group that has no members.",
                response=RESET_RESPONSE,
                body=RESET,
                query=(IN_GROUP,),
                problems=_IN_USE,
            ),
            Route(
                "DELETE",
                f"{ONE}/offsets",
                self.delete_offsets,
                "Delete the offsets of a topic that the group's members do not read.",
                response=DELETION_RESPONSE,
                query=(IN_GROUP, OF_TOPIC),
                problems={**_ABSENT, 409: "Members of the group read the topic."},
            ),
            Route(
                "GET",
                ONE,
                self.describe,
                "One group: its members and committed offsets.",
                response=DESCRIPTION,
                query=(IN_GROUP,),
                problems=_ABSENT,
            ),
            Route(
                "DELETE",
                ONE,
                self.delete,
                "Delete a group that has no members, and its offsets.",
                response=written({"group": STRING}),
                query=(IN_GROUP,),
                problems=_IN_USE,
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def describe(self, call: Call) -> JsonResponse:
        """``GET /v1/groups/{group}``."""
        group = call.path["group"]
        description = await self._descriptions.of(group)
        return JsonResponse(
            {
                "group": group,
                "type": description.type,
                "protocol_type": description.protocol_type,
                "state": description.state,
                "coordinator": description.coordinator,
                "protocol": description.protocol,
                "epoch": description.epoch,
                "members": description.members,
                "offsets": _visible(await self._descriptions.offsets(group), call),
            }
        )

    async def lag(self, call: Call) -> JsonResponse:
        """``GET /v1/groups/{group}/lag``."""
        group = call.path["group"]
        try:
            lag = await self._lag_of(group)
            return JsonResponse({**lag, "partitions": _visible(lag["partitions"], call)})
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR or call.forwarded:
                raise
        path = f"{PATH}/{quote(group, safe='')}/lag"
        return JsonResponse(await self._others.request(self._coordinators.of(group), call, path, PEER_LAG))

    # --- writes ------------------------------------------------------------------------------------------------------

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/groups/{group}``."""
        group = call.path["group"]
        check_no_members(await self._descriptions.of(group))
        if not call.dry_run:
            body = {"groups_names": [group]}
            response = await self._coordinators.request(group, DELETE_GROUPS, body, _code_of_result)
            code = ErrorCode.of(_code_of_result(response))
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"the coordinator did not delete group {group!r}")
        return JsonResponse({"group": group, **_written(call)})

    async def reset(self, call: Call) -> JsonResponse:
        """``POST /v1/groups/{group}/offsets``."""
        group, to = call.path["group"], call.body["to"]
        if ("value" in to) == (to["kind"] in WITHOUT_VALUE):
            rule = "takes no value" if to["kind"] in WITHOUT_VALUE else "requires a value"
            raise Problem(400, "INVALID_REQUEST", f"body.to: {to['kind']} {rule}")
        target = Target(to["kind"], to.get("value", 0))

        def check(topics: Iterable[str]) -> None:
            for name in topics:
                call.caller.require(Operation.READ, topic_resource(name))

        offsets = await self._resets.reset(group, target, call.body.get("topics"), check, dry_run=call.dry_run)
        return JsonResponse({"group": group, "offsets": offsets, **_written(call)})

    async def delete_offsets(self, call: Call) -> JsonResponse:
        """``DELETE /v1/groups/{group}/offsets``."""
        group, topic = call.path["group"], call.query["topic"]
        if topic is None:
            raise Problem(
                400,
                "INVALID_REQUEST",
                "the query parameter 'topic' is missing",
                what_to_do="Specify the topic: ?topic=orders. To delete all offsets, delete the group.",
            )
        offsets = await self._resets.delete(group, topic, dry_run=call.dry_run)
        return JsonResponse({"group": group, "offsets": offsets, **_written(call)})


def _visible(rows: Sequence[Mapping[str, Any]], call: Call) -> list[Mapping[str, Any]]:
    """Return the rows of topics that the caller may describe."""
    topics = {row["topic"] for row in rows}
    allowed = {name: call.caller.may(Operation.DESCRIBE, topic_resource(name)) for name in topics}
    return [row for row in rows if allowed[row["topic"]]]


def _written(call: Call) -> dict[str, Any]:
    """Return the response of a write to ``__consumer_offsets``, which changes no znodes."""
    return {"dry_run": call.dry_run, "znodes": []}


def _code_of_result(response: Mapping[str, Any]) -> int:
    code: int = response["results"][0]["error_code"]
    return code
