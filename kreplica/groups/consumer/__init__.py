"""Groups of KIP-848: the coordinator shares out the partitions, and each member comes to its share at its own pace.

One heartbeat does it all.  A group's epoch grows with whatever changes what members are to have; a target is computed
for that epoch; and each member goes, heartbeat by heartbeat, from what it owns to its target.  No partition is given to
a member before the one that owns it has said that it gave it up, or is a member no more.

Pure, of frozen values:

* ``state``: ``GroupState``: a group as one value; ``members``: ``Member``; ``assignment``: sets of partitions
* ``requests``: ``Heartbeat``, and what makes no sense in any group
* ``transitions``: heartbeats, leaving, timing out: a state in, the next one out: start here
* ``fencing``: who is still a member, and what is free: the rules by name
* ``subscriptions``: which topics members read; ``topic_lookup``: regular expressions of topics
* ``targets``, ``assignors/``: what everybody is to have
* ``reconciliation``: how far a member may go
* ``persistence``: the records between two states, and the state that records lead to

In service:

* ``group``: ``ConsumerGroup``; ``writes``: what is decided and not committed; ``timers``: sessions and revocations
* ``coordinator``: ``ConsumerCoordinator``: what handlers of requests call; ``config``: what it is told of settings
"""
