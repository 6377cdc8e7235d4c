"""SyncGroup in each state of a classic group."""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import fencing, rebalancing
from kreplica.groups.classic.generation_check import check_generation
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import Sync, SyncCallback, SyncResponse
from kreplica.groups.classic.states import State


def sync(group: ClassicGroupState, request: Sync, respond: SyncCallback) -> None:
    """Handle SyncGroup within a step; responds immediately or once the leader's assignment is committed."""
    try:
        member = check_generation(group, request.member_id, request.instance_id, request.generation)
        _check_protocol(group, request)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    except KafkaError as error:
        group.send_response(respond, SyncResponse(error.code))
        return
    _record_sync(group, member)
    if group.state is State.STABLE:
        group.send_response(respond, _sync_response(group, member))
        member.restart_session()
        return
    group.respond_to_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request is still pending
    member.awaiting_sync = respond
    if group.roster.leader == member.member_id:
        _assign(group, dict(request.assignments))


def _check_protocol(group: ClassicGroupState, request: Sync) -> None:
    for name, expected, selected in (
        ("protocol type", request.protocol_type, group.roster.protocol_type),
        ("protocol", request.protocol_name, group.protocol),
    ):
        if expected is not None and expected != selected:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the request has the {name} {expected!r}, but the group has {selected!r}",
            )


def _record_sync(group: ClassicGroupState, member: Member) -> None:
    unsynced = group.roster.unsynced
    unsynced.pop(member.member_id, None)
    if not unsynced:
        group.stop_timer()


def _assign(group: ClassicGroupState, assignments: Mapping[str, bytes]) -> None:
    """Write the leader's assignment; it takes effect once it is committed."""
    generation = group.generation

    def on_stored(code: ErrorCode) -> None:
        is_completing = group.state is State.COMPLETING_REBALANCE
        if not fencing.is_same_rebalance(is_completing, generation, group.generation):
            return
        if code is not ErrorCode.NONE:
            rebalancing.fail_syncs(group, code)
            rebalancing.prepare(group, f"the assignment could not be written ({code.name})")
            return
        group.transition(State.STABLE)
        for member in group.roster.members.values():
            group.roster.assign(member, assignments.get(member.member_id, b""))
            group.respond_to_sync(member, _sync_response(group, member))

    group.store(assignments, on_stored)


def _sync_response(group: ClassicGroupState, member: Member) -> SyncResponse:
    return SyncResponse(ErrorCode.NONE, group.roster.protocol_type, group.protocol, member.assignment)
