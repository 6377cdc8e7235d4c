"""Fencing rules of KIP-848 groups: member epochs, instance ids and partition ownership."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import Assignment, is_within
from kreplica.groups.consumer.members import Member


def is_current_epoch(member: Member, epoch: int) -> bool:
    """Return True if a heartbeat contains the member epoch of the last response."""
    return epoch == member.progress.epoch


def missed_last_response(member: Member, epoch: int, owned: Assignment | None) -> bool:
    """Return True if a heartbeat contains the previous epoch because the last response was lost.

    If the member owns partitions outside its assignment, it has missed more than one response.
    """
    if epoch != member.progress.previous_epoch or owned is None:
        return False
    return is_within(owned, member.progress.assigned)


def is_epoch_of_commit(member: Member, epoch: int) -> bool:
    """Return True if a commit contains the current member epoch; after an epoch change, partitions may have moved."""
    return epoch == member.progress.epoch


def is_free(owner: str | None, member_id: str) -> bool:
    """Return True if a partition has no other owner, so that it may be assigned to the member."""
    return owner is None or owner == member_id


def has_revoked(member: Member, owned: Assignment | None) -> bool:
    """Return True if a heartbeat confirms that the member has revoked all pending partitions."""
    if owned is None:
        return False
    pending = member.progress.pending_revocation
    return all(owned.get(topic_id, frozenset()).isdisjoint(partitions) for topic_id, partitions in pending.items())


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raise an error if a heartbeat contains an outdated member epoch.

    :raise KafkaError: FENCED_MEMBER_EPOCH; the member must release all partitions and rejoin.
    """
    if not is_current_epoch(member, epoch) and not missed_last_response(member, epoch, owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.member_id!r} is at epoch {member.progress.epoch}, but the request has epoch {epoch}",
        )


def check_instance(member: Member, member_id: str) -> None:
    """Raise an error if another member has taken over the instance id.

    :raise KafkaError: FENCED_INSTANCE_ID.
    """
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {member.subscription.instance_id!r} is now member {member.member_id!r}, not {member_id!r}",
        )


def check_released(member: Member, member_id: str) -> None:
    """Raise an error if a client tries to take over the instance id of a static member that has not left.

    :raise KafkaError: UNRELEASED_INSTANCE_ID.
    """
    if member.member_id != member_id and not member.is_away:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance {member.subscription.instance_id!r} is member {member.member_id!r}, which has not left",
        )
