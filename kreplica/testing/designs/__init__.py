"""Three designs of cluster coordination on one bench, in virtual time.

The seam is ``roles``: a design decides, and a broker obeys.

Designs:

* ``race``: replicas race for a leader znode; state znodes per replica carry requests (first design)
* ``leader_coordinated``: the leader drives the states of its replicas through a queue per broker (second design)
* ``agent``, ``replica``: the common part of these two; ``agent_design`` starts their clusters; ``seed_znodes``: znodes
* ``controller_design``: the product's controller, with ``light_channel`` to each ``commanded_broker``

Below the seam:

* ``bench_cluster``: everything that one run needs, and the interface of a design
* ``coordinator``: ZooKeeper server with counters and a time model; ``clients``, ``sizes``
* ``light_broker``: broker without logs; ``availability``: times without a leader; ``counts``; ``layout``: partitions

Runs:

* ``measure``: the events of one case; ``suite``: choice of cases, parallel processes
* ``seed_figures``: the figures in the design texts, measured
* ``tables``, ``pictures``: output of ``kreplica designs``
"""
