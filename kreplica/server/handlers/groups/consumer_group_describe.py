"""ConsumerGroupDescribe (key 69): describes KIP-848 groups and their members."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import NO_PARTITIONS, Assignment, to_rows
from kreplica.groups.consumer.members import Member
from kreplica.groups.consumer.state import GroupState, StateName
from kreplica.groups.consumer_coordinator import ConsumerCoordinator
from kreplica.runtime.slices import Steps
from kreplica.server.authorization.authorized_operations import NOT_REQUESTED, AuthorizedOperations
from kreplica.server.handlers.groups.describe_groups import STEP_GROUPS
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

CONSUMER_MEMBER = 1
"""Member type of the KIP-848 protocol; 0 is the classic protocol."""


class ConsumerGroupDescribe:
    """Responds in slices; an error of one group is reported in that group's row."""

    def __init__(self, groups: ConsumerCoordinator, operations: AuthorizedOperations) -> None:
        self._groups = groups
        self._operations = operations

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[dict[str, Any]]:
        rows = []
        for number, group_id in enumerate(request.body["group_ids"], 1):
            row = self._group(request, group_id)
            rows.append(row)
            if row.get("members") or number % STEP_GROUPS == 0:
                yield
        return {"throttle_time_ms": 0, "groups": rows}

    def _group(self, request: Request, group_id: str) -> dict[str, Any]:
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group ID is empty")
            state = self._groups.describe(group_id)
        except KafkaError as error:
            return {
                "error_code": int(error.code),
                "error_message": error.message or None,
                "group_id": group_id,
                "group_state": StateName.DEAD.value if error.code is ErrorCode.GROUP_ID_NOT_FOUND else "",
            }
        return {
            "error_code": 0,
            "error_message": None,
            "group_id": group_id,
            "group_state": state.name.value,
            "group_epoch": state.epoch,
            "assignment_epoch": state.target_epoch,
            "assignor_name": self._groups.assignor_of(state),
            "members": [self._member(state, member) for member in state.members.values()],
            "authorized_operations": self._operations.on_group(request, group_id)
            if request.body["include_authorized_operations"]
            else NOT_REQUESTED,
        }

    def _member(self, state: GroupState, member: Member) -> dict[str, Any]:
        subscription = member.subscription
        return {
            "member_id": member.member_id,
            "instance_id": subscription.instance_id,
            "rack_id": subscription.rack_id,
            "member_epoch": member.progress.epoch,
            "client_id": subscription.client_id,
            "client_host": subscription.client_host,
            "subscribed_topic_names": subscription.topic_names,
            "subscribed_topic_regex": subscription.regular_expression,
            "assignment": self._with_topic_names(member.progress.assigned),
            "target_assignment": self._with_topic_names(state.target.get(member.member_id, NO_PARTITIONS)),
            "member_type": CONSUMER_MEMBER,
        }

    def _with_topic_names(self, assignment: Assignment) -> dict[str, Any]:
        """Return an assignment with topic names, without deleted topics."""
        rows = to_rows(assignment)
        for row in rows:
            row["topic_name"] = self._groups.view.topic_name(row["topic_id"])
        return {"topic_partitions": [row for row in rows if row["topic_name"] is not None]}
