"""Groups of the classic rebalance protocol: the group leader, one of the members, computes the assignment.

Every rebalance starts a new generation: all members send JoinGroup with their metadata, the leader receives all
metadata and sends the assignments (opaque here) with SyncGroup, and each member receives its own.

* ``group``: a group and its requests; ``group_state``: its state; ``states``: valid transitions
* ``roster``: members, leader and common protocols; ``member``: a member
* ``joining``, ``syncing``: requests in each state; ``member_removal``: leaving
* ``rebalancing``: start and completion of rebalances
* ``generation_check``: checks member and generation of a request; ``fencing``: its rules
* ``session_timer``, ``session_expiry``: session timeouts and the expiry of members
* ``group_records``: conversion to and from log records
* ``requests``: requests and responses; ``config``: settings
"""
