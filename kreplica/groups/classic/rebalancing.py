"""When a rebalance begins, and when it has everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.groups.classic import joining, member_removal, syncing
from kreplica.groups.classic.requests import Synced
from kreplica.groups.classic.states import PREVIOUS, State

if TYPE_CHECKING:
    from kreplica.groups.classic.group import ClassicGroup

log = Logger()


def prepare(group: ClassicGroup, reason: str) -> None:
    """Let all members join anew; nothing where they are asked to already.

    :param reason: for the log.
    """
    if group.state not in PREVIOUS[State.PREPARING_REBALANCE]:
        return
    if group.state is State.COMPLETING_REBALANCE:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
    log.info(
        "group {group!r} of generation {generation} begins a rebalance: {reason}",
        group=group.group_id,
        generation=group.generation,
        reason=reason,
    )
    was_empty = group.state is State.EMPTY
    group.transition(State.PREPARING_REBALANCE)
    if was_empty:
        delay_ms = group.config.initial_rebalance_delay_ms
        _gather(group, delay_ms, max(group.roster.rebalance_timeout_ms - delay_ms, 0))
    else:
        group.start_timer(group.roster.rebalance_timeout_ms, lambda: _complete(group))
        complete_if_ready(group)


def complete_if_ready(group: ClassicGroup) -> None:
    """End the wait for members where all have joined that are known."""
    if group.state is State.PREPARING_REBALANCE and not group.is_gathering and group.roster.has_all_joined:
        _complete(group)


def fail_syncs(group: ClassicGroup, code: ErrorCode) -> None:
    """There will be no assignment in this generation."""
    for member in group.roster.members.values():
        syncing.end(group, member, Synced(code))


def _gather(group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
    """Wait for more members, and again as long as some come; all in all no longer than members may take to join."""

    def over() -> None:
        if group.has_newcomer and left_ms > 0:
            again_ms = min(group.config.initial_rebalance_delay_ms, left_ms)
            _gather(group, again_ms, left_ms - again_ms)
        else:
            _complete(group)

    group.is_gathering = True
    group.has_newcomer = False
    group.start_timer(delay_ms, over)


def _complete(group: ClassicGroup) -> None:
    """All have joined, or the time is up: who has not joined is no member any more, unless it is a static one."""
    roster = group.roster
    group.stop_timer()
    for member in list(roster.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            member_removal.drop(group, member)
    if roster.members and not roster.elect_joined_leader():
        # Only static members are left: each has until the end of its session to come again.
        log.warn("group {group!r}: nobody has joined", group=group.group_id)
        group.start_timer(roster.rebalance_timeout_ms, lambda: _complete(group))
        return
    group.is_gathering = False
    group.begin_generation()
    log.info(
        "group {group!r} has {count} members in generation {generation}",
        group=group.group_id,
        count=len(roster.members),
        generation=group.generation,
    )
    if not roster.members:
        group.store({}, lambda code: _emptied(group, code))
        return
    for member in roster.members.values():
        roster.unsynced[member.member_id] = None
        member.is_new = False
        member.heard()
        joining.end(group, member, joining.joined(group, member))
    group.start_timer(roster.rebalance_timeout_ms, lambda: _expire_syncs(group))


def _emptied(group: ClassicGroup, code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        # Nobody waits for it: whoever coordinates next finds members that are gone, and misses them soon.
        log.warn("group {group!r} is empty, which could not be written: {code}", group=group.group_id, code=code.name)


def _expire_syncs(group: ClassicGroup) -> None:
    """Who has joined and does not ask for its assignment is no member any more, not even a static one."""
    missing = [group.roster.members[member_id] for member_id in group.roster.unsynced]
    for member in missing:
        member_removal.drop(group, member)
    prepare(group, f"{len(missing)} members did not ask for their assignments")
