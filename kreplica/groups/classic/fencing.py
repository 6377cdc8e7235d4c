"""Predicates that fence members with an outdated generation or a replaced instance id."""

from __future__ import annotations


def is_current_generation(given: int, current: int) -> bool:
    """Return True if a request carries the current generation of the group."""
    return given == current


def holds_instance(member_id: str, holder: str) -> bool:
    """Return True if a static member is the latest one to join with its instance id (KIP-345).

    :param holder: id of the member that currently has the instance id.
    """
    return member_id == holder


def is_same_rebalance(is_completing: bool, generation: int, current: int) -> bool:
    """Return True if an assignment belongs to the rebalance that waits for it.

    :param is_completing: whether the group waits for an assignment at all.
    """
    return is_completing and generation == current
