"""Who may act for a group, or may not any more: each rule that keeps a stale member out, by a name."""

from __future__ import annotations


def is_current_generation(given: int, current: int) -> bool:
    """Whether a member speaks of the group's generation, and not of one that a rebalance has ended."""
    return given == current


def holds_instance(member_id: str, holder: str) -> bool:
    """Whether a static member is the one that came last under its instance id, and not one that it replaced (KIP-345).

    :param holder: the member that has the instance id now.
    """
    return member_id == holder


def is_same_rebalance(is_completing: bool, generation: int, current: int) -> bool:
    """Whether an assignment that is written now is still that of the rebalance which waits for it.

    :param is_completing: whether the group waits for an assignment at all.
    """
    return is_completing and generation == current
