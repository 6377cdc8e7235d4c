"""Partition assignors of the KIP-848 protocol, which are pure and deterministic functions.

* ``assignor``: the interface
* ``uniform``: equal counts and minimal movement (the default)
* ``range``: contiguous ranges, the same partition numbers of every topic
"""

from kreplica.groups.consumer.assignors.assignor import Assignor, Group, Subscriber
from kreplica.groups.consumer.assignors.range import RangeAssignor
from kreplica.groups.consumer.assignors.uniform import UniformAssignor

__all__ = ["ASSIGNORS", "Assignor", "Group", "RangeAssignor", "Subscriber", "UniformAssignor"]

ASSIGNORS: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())
"""All assignors; the first is the default."""
