"""A consumer's place in its group.

* ``membership`` what a consumer and its membership expect of each other; ``options`` how it takes part; ``joining``
  makes one
* ``member`` what members have in common; ``classic`` those of classic groups; ``consumer`` those of KIP-848, and
  ``standing`` what one of these knows and says
* ``assignors/`` how a classic group's leader shares partitions out; ``leading`` when it does; ``subscription`` what
  members tell each other
* ``link`` the ways to the coordinator; ``verdicts`` what its errors mean; ``session`` how long a member may believe in
  itself; ``handover`` tells who reads; ``offsets`` commits; ``bell`` wakes a coroutine
"""

from kreplica.client.group.joining import new_membership
from kreplica.client.group.membership import AssignmentListener, Membership
from kreplica.client.group.options import GroupOptions, GroupProtocol
from kreplica.client_core.offsets import NO_GENERATION, GroupIdentity

__all__ = [
    "NO_GENERATION",
    "AssignmentListener",
    "GroupIdentity",
    "GroupOptions",
    "GroupProtocol",
    "Membership",
    "new_membership",
]
