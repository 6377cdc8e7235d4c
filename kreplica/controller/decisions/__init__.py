"""Pure decisions.

* ``state_changes``: which partitions need a new leader or ISR after a change of brokers; ``elections``: which replica
  becomes the leader
* ``reassignment_plan``: the steps of a reassignment
"""
