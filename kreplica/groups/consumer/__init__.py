"""Groups of the consumer rebalance protocol (KIP-848): the coordinator computes the assignment.

All requests are ConsumerGroupHeartbeats. The group epoch is incremented whenever members, subscriptions or topics
change. A target assignment is computed for each epoch, and each member moves towards its target with its own
heartbeats. A partition is assigned to a member only after its previous owner has confirmed the revocation or has been
removed.

Pure modules, on immutable values:

* ``transitions``: state changes by heartbeats, leaving and timeouts
* ``state``: a group as one value; ``members``: its members; ``assignment``: sets of partitions
* ``requests``: heartbeats and their validation; ``fencing``: rules for epochs and ownership
* ``subscriptions``: subscribed topics; ``topic_lookup``: regular expressions
* ``target_assignment``, ``assignors``: computation of the target
* ``reconciliation``: steps of a member towards its target
* ``persistence``: conversion to and from records; ``memory_size``: memory charged for a group

Modules with timers and I/O:

* ``group``: a running group; ``pending_writes``: uncommitted changes
* ``member_timers``: session and revocation timeouts
* ``config``: settings
"""
