"""Removes members that sent no heartbeat within the session timeout, which ``session_timer`` measures.

Members of KIP-848 groups are removed by ``consumer/group.py``.
"""

from __future__ import annotations

from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.member_removal import remove


def expire(group: ClassicGroupState, member: Member) -> None:
    """Remove a member whose session has expired, unless a pending response keeps it alive."""
    if member.is_kept_alive:
        member.restart_session()
    else:
        remove(group, member, f"{member.member_id!r} sent no heartbeat for {member.session_timeout_ms} ms")
