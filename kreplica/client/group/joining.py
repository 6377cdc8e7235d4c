"""How a consumer comes into its group."""

from __future__ import annotations

from collections.abc import Iterable

from kreplica.client.cluster import Cluster
from kreplica.client.group.classic import ClassicMember
from kreplica.client.group.membership import AssignmentListener, Membership
from kreplica.client.group.options import GroupOptions


def new_membership(
    cluster: Cluster, options: GroupOptions, topics: Iterable[str], listener: AssignmentListener
) -> Membership:
    """A membership that has not begun yet: ``start`` it, and ``stop`` it.

    :param topics: to read at first.
    :param listener: who reads.
    :raise ValueError: an assignor is not known.
    """
    return ClassicMember(cluster, options, topics, listener)
