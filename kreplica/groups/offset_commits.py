"""Authorizes and executes offset commits.

The group's ``check_commit`` checks the member and its generation or epoch: see ``classic/group.py`` with
``classic/generation_check.py``, and ``consumer/group.py`` with ``consumer/fencing.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.group import NO_GENERATION, UNKNOWN_MEMBER
from kreplica.groups.records import TEXT_SIZE_MAX

if TYPE_CHECKING:
    from kreplica.coordination.state_log import ProducerEpoch
    from kreplica.groups.offsets import OffsetValues, Respond
    from kreplica.groups.shard import GroupShard
    from kreplica.wire.batch_building import BatchBuilder

MEMBER_EPOCH_VERSION_MIN = 9
"""First version of OffsetCommit that supports members of KIP-848 groups."""

_GROUP_ID_CHARACTERS_SAFE = TEXT_SIZE_MAX // 4


@dataclass(slots=True)
class Committer:
    """The client that commits offsets, as described by its request.

    :param generation: generation or member epoch; ``NO_GENERATION`` for a client that is not a member.
    :param version: version of the request.
    :param client_host: client address, charged for a new group.
    """

    group_id: str
    member_id: str = UNKNOWN_MEMBER
    instance_id: str | None = None
    generation: int = NO_GENERATION
    version: int = 0
    client_host: str = ""


def is_writable(group_id: str) -> bool:
    """Return True if a group id fits into a record key."""
    return len(group_id) <= _GROUP_ID_CHARACTERS_SAFE or len(group_id.encode()) <= TEXT_SIZE_MAX


def is_metadata_acceptable(metadata: str, characters_max: int) -> bool:
    """Return True if this metadata may be committed with an offset.

    :param characters_max: ``offset.metadata.max.bytes``, which limits characters despite its name.
    """
    return not metadata or (len(metadata) <= characters_max and len(metadata.encode()) <= TEXT_SIZE_MAX)


def commit(
    shard: GroupShard,
    committer: Committer,
    values: OffsetValues,
    respond: Respond,
    prepared: BatchBuilder | None = None,
) -> None:
    """Commit offsets of a group; create the group if it does not exist.

    :param values: at least one.
    :param respond: called exactly once; NONE means committed.
    :param prepared: the batch with these offsets, if there are many (see ``Offsets.prepare``).
    :raise KafkaError: the client may not commit; nothing was appended and ``respond`` is not called.
    """
    _admit(shard, committer, transactional=False)
    respond_after_cleanup = _with_cleanup(shard, committer.group_id, respond)
    try:
        shard.offsets.commit(committer.group_id, values, respond_after_cleanup, prepared, committer.client_host)
    except KafkaError:
        shard.remove_if_unused(committer.group_id)
        raise


def commit_in_transaction(
    shard: GroupShard,
    committer: Committer,
    producer: ProducerEpoch,
    values: OffsetValues,
    respond: Respond,
    prepared: BatchBuilder | None = None,
) -> None:
    """Like ``commit``, but as part of a producer's transaction, whose partition has been verified (KIP-890).

    :raise KafkaError: as for ``commit``.
    """
    try:
        _admit(shard, committer, transactional=True)
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # TxnOffsetCommit does not define STALE_MEMBER_EPOCH
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise
    respond_after_cleanup = _with_cleanup(shard, committer.group_id, respond)
    try:
        shard.offsets.commit_in_transaction(
            committer.group_id, values, producer, respond_after_cleanup, prepared, committer.client_host
        )
    except KafkaError:
        shard.remove_if_unused(committer.group_id)
        raise


def _admit(shard: GroupShard, committer: Committer, *, transactional: bool) -> None:
    group = shard.group(committer.group_id)
    if group is not None:
        group.check_commit(
            committer.member_id,
            committer.instance_id,
            committer.generation,
            transactional=transactional,
            version=committer.version,
        )
        return
    if committer.generation > NO_GENERATION:
        knows_epochs = not transactional and committer.version >= MEMBER_EPOCH_VERSION_MIN
        code = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"group {committer.group_id!r} does not exist")
    shard.classic(committer.group_id, committer.client_host)


def _with_cleanup(shard: GroupShard, group_id: str, respond: Respond) -> Respond:
    def clean_up(code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            shard.remove_if_unused(group_id)
            if code is ErrorCode.MESSAGE_TOO_LARGE:
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        respond(code)

    return clean_up
