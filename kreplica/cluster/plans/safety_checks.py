"""Rejections and warnings for the steps of a plan.

A move loses no records: in-sync replicas stay until all target replicas are in sync. Two cases are rejected unless
``force`` is set. First, a plan must not remove all in-sync replicas of a partition that has out-of-sync replicas.
Second, if no in-sync replica is alive, nothing can be copied; with ``force`` an out-of-sync replica becomes leader (an
unclean election), and acknowledged records may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.plan import Action, Step
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition

LISTED_MAX = 3
"""Maximum number of partitions listed in one sentence."""

PLANS_OPEN_MAX = 20
"""Maximum number of open plans, because the controller keeps their steps in memory."""

BY_FORCE = "set force to true to continue anyway"


def check(steps: Sequence[Step], cluster: ClusterState, *, force: bool) -> list[str]:
    """Check the steps of a plan.

    :return: warnings, as sentences.
    :raise KafkaError: REASSIGNMENT_IN_PROGRESS if other changes to the same partitions are in progress; INVALID_REQUEST
        if in-sync replicas are at risk and ``force`` is not set.
    """
    _check_no_conflicts(steps, cluster)
    moves = [step for step in steps if step.action is Action.MOVE]
    warnings = [*_check_live_in_sync(moves, cluster, force), *_check_last_copies(moves, cluster, force)]
    return [
        *warnings,
        *_dead_targets(moves, cluster),
        *_all_replicas_move(moves, cluster),
        *_unknown_sizes(moves, cluster),
    ]


def _check_no_conflicts(steps: Sequence[Step], cluster: ClusterState) -> None:
    if len(set(cluster.planned.values())) >= PLANS_OPEN_MAX:
        raise _in_progress(f"{PLANS_OPEN_MAX} plans are open, which is the limit: wait for one to end, or cancel one")
    resized = {step.topic for step in steps if not step.action.is_reassignment}
    touched = {step.key for step in steps}
    for partition, plan_id in sorted(cluster.planned.items()):
        if partition in touched or partition.topic in resized:
            raise _in_progress(
                f"{partition} is part of the open plan {plan_id}: wait for it or cancel it, then try again"
            )
    moving = [key for key in sorted(touched) if key.topic in cluster.topics and cluster.is_moving(key)]
    if moving:
        raise _in_progress(f"{_listing(moving)}: another reassignment is in progress; wait for it or cancel it")
    being_removed = sorted(key for key in touched if key.partition in cluster.topic(key.topic).read_only)
    if being_removed:
        raise _in_progress(f"{_listing(being_removed)}: being removed; wait for the removal or cancel it")
    for topic in sorted(resized):
        if cluster.topics[topic].read_only:
            numbers = sorted(cluster.topics[topic].read_only)
            raise _in_progress(f"partitions {numbers} of {topic} are being removed; wait for the removal")


def _check_live_in_sync(moves: Iterable[Step], cluster: ClusterState, force: bool) -> list[str]:
    """Check for partitions whose in-sync replicas are all dead."""
    lost = [step for step in moves if step.key in cluster.in_sync and not _live_in_sync(step.key, cluster)]
    if not lost:
        return []
    listing = _listing(step.key for step in lost)
    holders = sorted({broker for step in lost for broker in cluster.in_sync[step.key]})
    text = f"{listing}: the only in-sync replicas are on brokers {holders}, "
    text += "which are not alive, so nothing can be copied"
    if not force:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{text}; start them, or {BY_FORCE}: an out-of-sync replica becomes leader, and records may be lost",
        )
    return [f"{text}; an out-of-sync replica may become leader, and acknowledged records may be lost."]


def _check_last_copies(moves: Iterable[Step], cluster: ClusterState, force: bool) -> list[str]:
    """Check for under-replicated partitions that would lose all in-sync replicas."""
    dropped = []
    for step in moves:
        in_sync = cluster.in_sync.get(step.key)
        if in_sync is None or all(replica in in_sync for replica in step.before):
            continue
        if not any(replica in step.after for replica in in_sync):
            dropped.append(step.key)
    if not dropped:
        return []
    text = f"{_listing(dropped)}: the plan would remove every in-sync replica of an under-replicated partition"
    if not force:
        what_to_do = f"wait until all replicas are in sync, keep an in-sync one, or {BY_FORCE}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text}; {what_to_do}")
    return [f"{text}."]


def _live_in_sync(partition: TopicPartition, cluster: ClusterState) -> list[int]:
    return [broker for broker in cluster.in_sync[partition] if broker in cluster.brokers]


def _dead_targets(moves: Iterable[Step], cluster: ClusterState) -> list[str]:
    waiting = [step for step in moves if any(replica not in cluster.brokers for replica in step.after)]
    if not waiting:
        return []
    dead = sorted({replica for step in waiting for replica in step.after if replica not in cluster.brokers})
    listing = _listing(step.key for step in waiting)
    return [
        f"{listing}: brokers {dead} are not alive but remain replicas: the move completes when they are back in sync."
    ]


def _all_replicas_move(moves: Iterable[Step], cluster: ClusterState) -> list[str]:
    leaving = [step.key for step in moves if len(step.before) > 1 and not set(step.before) & set(step.after)]
    return [f"{_listing(leaving)}: all replicas move, so all data is copied."] if leaving else []


def _unknown_sizes(moves: Iterable[Step], cluster: ClusterState) -> list[str]:
    unknown = [step.key for step in moves if step.receiving_brokers and step.key not in cluster.sizes]
    if not unknown:
        return []
    return [f"{_listing(unknown)}: the size is unknown and counted as 0 in the bytes and the expected duration."]


def _listing(partitions: Iterable[TopicPartition]) -> str:
    listed = sorted(partitions)
    names = ", ".join(map(str, listed[:LISTED_MAX]))
    more = len(listed) - LISTED_MAX
    return f"{names} and {more} more" if more > 0 else names


def _in_progress(text: str) -> KafkaError:
    return KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
