"""Starts and completes rebalances of a classic group."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.requests import SyncResponse
from kreplica.groups.classic.states import PREVIOUS, State

log = Logger()


def prepare(group: ClassicGroupState, reason: str) -> None:
    """Start a rebalance, unless the group is already preparing one.

    :param reason: for the log.
    """
    if group.state not in PREVIOUS[State.PREPARING_REBALANCE]:
        return
    if group.state is State.COMPLETING_REBALANCE:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
    log.info(
        "group {group!r}, generation {generation}, starts a rebalance: {reason}",
        group=group.group_id,
        generation=group.generation,
        reason=reason,
    )
    was_empty = group.state is State.EMPTY
    group.transition(State.PREPARING_REBALANCE)
    if was_empty:
        delay_ms = group.config.initial_rebalance_delay_ms
        _await_members(group, delay_ms, max(group.roster.rebalance_timeout_ms - delay_ms, 0))
    else:
        group.start_timer(group.roster.rebalance_timeout_ms, lambda: _complete(group))
        complete_if_ready(group)


def complete_if_ready(group: ClassicGroupState) -> None:
    """Complete the join phase if all members have joined."""
    if group.state is State.PREPARING_REBALANCE and not group.is_awaiting_members and group.roster.has_all_joined:
        _complete(group)


def fail_syncs(group: ClassicGroupState, code: ErrorCode) -> None:
    """Respond to all pending SyncGroup requests of this generation with an error."""
    for member in group.roster.members.values():
        group.respond_to_sync(member, SyncResponse(code))


def _await_members(group: ClassicGroupState, delay_ms: int, remaining_ms: int) -> None:
    """Wait for more members; extend the wait while new ones join, up to the rebalance timeout in total."""

    def on_delay_over() -> None:
        if group.has_new_member and remaining_ms > 0:
            next_delay_ms = min(group.config.initial_rebalance_delay_ms, remaining_ms)
            _await_members(group, next_delay_ms, remaining_ms - next_delay_ms)
        else:
            _complete(group)

    group.is_awaiting_members = True
    group.has_new_member = False
    group.start_timer(delay_ms, on_delay_over)


def _complete(group: ClassicGroupState) -> None:
    """Complete the join phase; remove dynamic members that have not joined."""
    roster = group.roster
    group.stop_timer()
    for member in list(roster.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            group.drop(member)
    if roster.members and not roster.elect_joined_leader():
        # Only static members are left; they may rejoin until their sessions expire.
        log.warn("group {group!r}: no member has joined", group=group.group_id)
        group.start_timer(roster.rebalance_timeout_ms, lambda: _complete(group))
        return
    group.is_awaiting_members = False
    group.begin_generation()
    log.info(
        "group {group!r} has {count} members in generation {generation}",
        group=group.group_id,
        count=len(roster.members),
        generation=group.generation,
    )
    if not roster.members:
        group.store({}, lambda code: _log_write_failure(group, code))
        return
    for member in roster.members.values():
        roster.unsynced[member.member_id] = None
        member.is_new = False
        member.restart_session()
        group.respond_to_join(member, group.join_response(member))
    group.start_timer(roster.rebalance_timeout_ms, lambda: _expire_syncs(group))


def _log_write_failure(group: ClassicGroupState, code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        # No request is waiting for this write. The next coordinator loads the former members, whose sessions expire.
        log.warn("cannot write the empty group {group!r}: {code}", group=group.group_id, code=code.name)


def _expire_syncs(group: ClassicGroupState) -> None:
    """Remove all members, including static ones, that joined but did not send SyncGroup in time."""
    missing = [group.roster.members[member_id] for member_id in group.roster.unsynced]
    for member in missing:
        group.drop(member)
    prepare(group, f"{len(missing)} members did not send SyncGroup in time")
