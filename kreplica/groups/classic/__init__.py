"""Groups of the classic rebalance protocol: the group leader, one of the members, computes the assignment.

Every rebalance starts a new generation: all members send JoinGroup with their metadata, the leader receives the
metadata of all members and sends the assignments (opaque to the coordinator) with SyncGroup, and each member receives
its own assignment.

* ``group``: a group and its requests; ``group_state``: its state; ``states``: valid transitions
* ``roster``: members, leader and common protocols; ``member``: a member
* ``joining``, ``syncing``: requests in each state; ``member_removal``: leaving
* ``rebalancing``: start and completion of rebalances
* ``generation_check``: checks the member and generation of a request; ``fencing``: the rules
* ``session_timer``, ``session_expiry``: session timeouts and the expiry of members
* ``group_records``: conversion to and from log records
* ``requests``: requests and responses; ``config``: settings
"""
