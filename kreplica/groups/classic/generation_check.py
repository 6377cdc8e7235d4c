"""Generation check of a classic group: rejects unknown and replaced members, and requests of an earlier generation.

Heartbeats, SyncGroup and offset commits (``ClassicGroup.check_commit``) use it.  ``fencing`` contains its rules.
"""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import fencing
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member


def check_member(group: ClassicGroupState, member_id: str, instance_id: str | None) -> Member:
    """Return the member with this id, and with this instance id if given.

    :raise KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has joined with the instance id.
    """
    if instance_id is not None:
        holder = group.roster.id_of(instance_id)
        if holder is not None and not fencing.holds_instance(member_id, holder):
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id!r} is member {holder!r} now")
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has instance id {instance_id!r}")
    member = group.roster.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    return member


def check_generation(group: ClassicGroupState, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the member if the generation is current.

    :raise KafkaError: as ``check_member``; ILLEGAL_GENERATION.
    """
    member = check_member(group, member_id, instance_id)
    if not fencing.is_current_generation(generation, group.generation):
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not the current generation {group.generation}"
        )
    return member
