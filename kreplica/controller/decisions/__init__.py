"""Pure decisions.

* ``state_changes``: which partitions need a new leader or ISR after a change of brokers
* ``leader_election``: which replica becomes the leader
* ``reassignment_plan``: the steps of a reassignment
"""
