"""Groups whose members share out the partitions themselves: one of them, the leader, assigns; the coordinator referees.

Every rebalance gives the group a new generation: all members join (and say what they support), the leader is sent
what all of them said, it sends back what each is to do (an assignment, opaque here), and everybody gets their own.

* ``group``: ``ClassicGroup``: one group; ``states``: what can follow what
* ``roster``: who is a member, who leads, which protocol all of them speak; ``member``: one of them
* ``joining``, ``syncing``, ``leaving``: what a request does in each state
* ``rebalancing``: when a rebalance begins, and when it has everybody
* ``guards``: who may act for a group, or may not any more
* ``sessions``: timers; ``group_records``: what a group writes to the log
* ``requests``: what is asked and answered; ``config``: settings
"""
