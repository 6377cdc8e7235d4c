"""What shares out partitions among members.  Pure: frozen values in, a new target out, the same for the same input.

* ``assignor``: ``Assignor``, and what it is given
* ``uniform``: everybody gets as many as anybody else, and keeps what it had (the default)
* ``range``: neighbouring partitions, the same numbers of every topic
"""

from kreplica.groups.consumer.assignors.assignor import Assignor, Group, Subscriber
from kreplica.groups.consumer.assignors.range import RangeAssignor
from kreplica.groups.consumer.assignors.uniform import UniformAssignor

__all__ = ["ASSIGNORS", "Assignor", "Group", "RangeAssignor", "Subscriber", "UniformAssignor"]

ASSIGNORS: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())
"""All there are, the default first."""
