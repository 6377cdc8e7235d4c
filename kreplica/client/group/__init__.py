"""A consumer's membership in its group.

* ``membership``: interface between a consumer and its membership; ``options``: options of a member
* ``joining``: creates a membership; ``member``: base of all members
* ``classic``: member of a classic group; ``group_leader``: assignment by the leader of such a group;
  ``subscription``: encoding of subscriptions and assignments; ``assignors/``: assignment strategies
* ``consumer``: member of a KIP-848 group; ``member_state``: its state and heartbeats
* ``coordinator_connection``: connections to the coordinator; ``error_actions``: reactions to the coordinator's errors
* ``session_timer``: detects an expired session; ``listener_calls``: calls the listener; ``offsets``: commits
* ``notifier``: wakes a coroutine
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
