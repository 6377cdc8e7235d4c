"""Predicates that fence members with an outdated generation or a replaced instance id."""

from __future__ import annotations


def is_current_generation(generation: int, current: int) -> bool:
    """Return True if a request's generation is the current generation of the group."""
    return generation == current


def holds_instance(member_id: str, holder: str) -> bool:
    """Return True if a static member was the last to join with its instance id (KIP-345).

    :param holder: id of the member that currently has the instance id.
    """
    return member_id == holder


def is_same_rebalance(is_completing: bool, generation: int, current: int) -> bool:
    """Return True if an assignment belongs to the current rebalance.

    :param is_completing: True if the group is waiting for an assignment.
    """
    return is_completing and generation == current
