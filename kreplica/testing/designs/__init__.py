"""Compares three designs of cluster coordination on the same simulated cluster, in virtual time.

``roles`` is the interface between a design, which chooses leaders, and the brokers.

Designs:

* ``race``: replicas race for a leader znode; state znodes per replica carry requests (first design)
* ``leader_coordinated``: the leader controls the states of its replicas through a queue per broker (second design)
* ``agent``, ``replica``: code shared by these two; ``agent_design``: starts their clusters; ``znode_paths``: znodes
* ``controller_design``: the product's controller, with ``light_channel`` to each ``commanded_broker``

Shared by all designs:

* ``bench_cluster``: the simulated cluster of one run, and the interface of a design
* ``light_zookeeper``: ZooKeeper server with counters and a time model; ``clients``; ``sizes``: sizes of messages
* ``light_broker``: broker without logs; ``availability``: times without a leader; ``counts``: counters;
  ``layout``: partitions

Runs:

* ``measure``: the events of one case; ``suite``: choice of cases, and parallel processes
* ``design_claims``: numbers in the design documents, compared with measurements
* ``tables``, ``pictures``: output of ``kreplica designs``
"""
