"""Generation check of a classic group: rejects unknown and replaced members, and requests from earlier generations.

Used for heartbeats, SyncGroup and offset commits (``ClassicGroup.check_commit``).  ``fencing`` contains the rules.
"""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import fencing
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member


def check_member(group: ClassicGroupState, member_id: str, instance_id: str | None) -> Member:
    """Return the member with this id and, if given, this instance id.

    :raise KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has joined with the instance id.
    """
    if instance_id is not None:
        holder = group.roster.id_of(instance_id)
        if holder is not None and not fencing.holds_instance(member_id, holder):
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id!r} is now member {holder!r}")
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has instance id {instance_id!r}")
    member = group.roster.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    return member


def check_generation(group: ClassicGroupState, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the member if the generation is current.

    :raise KafkaError: ILLEGAL_GENERATION, or the errors of ``check_member``.
    """
    member = check_member(group, member_id, instance_id)
    if not fencing.is_current_generation(generation, group.generation):
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not the current generation {group.generation}"
        )
    return member
