"""Who is still the member it says it is, and who may own what: each rule a predicate of its own."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import Assignment, is_within
from kreplica.groups.consumer.members import Member


def is_current_epoch(member: Member, epoch: int) -> bool:
    """Whether a heartbeat's member epoch is the one that the last answer said."""
    return epoch == member.progress.epoch


def missed_last_answer(member: Member, epoch: int, owned: Assignment | None) -> bool:
    """Whether a heartbeat's epoch is the one before: the last answer was lost, if the member owns no more than it said.

    One that owns anything else has lived through more than one lost answer, and must not go on.
    """
    if epoch != member.progress.previous_epoch or owned is None:
        return False
    return is_within(owned, member.progress.assigned)


def is_epoch_of_commit(member: Member, epoch: int) -> bool:
    """Whether a commit's member epoch is the member's: with an older one it may not own the partition any more."""
    return epoch == member.progress.epoch


def is_free(owner: str | None, member_id: str) -> bool:
    """Whether a partition may be given to a member: nobody owns it who has not said that it gave it up."""
    return owner is None or owner == member_id


def has_given_up(member: Member, owned: Assignment | None) -> bool:
    """Whether a member's heartbeat shows that it owns none of what it was to give up; one that is silent does not."""
    if owned is None:
        return False
    pending = member.progress.pending_revocation
    return all(owned.get(topic_id, frozenset()).isdisjoint(gone) for topic_id, gone in pending.items())


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Refuse a heartbeat of a member that was given up, or replaced, or answered by a coordinator that did not last.

    :raise KafkaError: FENCED_MEMBER_EPOCH: it has to drop everything, and join again.
    """
    if not is_current_epoch(member, epoch) and not missed_last_answer(member, epoch, owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.member_id!r} is at epoch {member.progress.epoch}, and says {epoch}",
        )


def check_instance(member: Member, member_id: str) -> None:
    """Refuse who speaks for a static member that is somebody else by now.

    :raise KafkaError: FENCED_INSTANCE_ID.
    """
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {member.subscription.instance_id!r} is member {member.member_id!r} now, not {member_id!r}",
        )


def check_released(member: Member, member_id: str) -> None:
    """Refuse who would take over a static member that has not left.

    :raise KafkaError: UNRELEASED_INSTANCE_ID.
    """
    if member.member_id != member_id and not member.is_away:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance {member.subscription.instance_id!r} is member {member.member_id!r}, which has not left",
        )
