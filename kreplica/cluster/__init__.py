"""Pure functions about the cluster: names, znode documents, placement and balancing. No I/O.

* ``topic_names``: valid topic names; ``new_topics``: a requested topic; ``uuids``: ids of topics and clusters
* ``znodes``: paths in ZooKeeper; ``documents``, ``partition_requests``, ``cordons``: their data
* ``json_documents``: JSON with errors that name the znode
* ``eligible_leaders``: eligible leader replicas (KIP-966)
* ``placement``: replicas of new partitions; ``rebalance``: new placement with the fewest bytes moved
* ``held_replicas``: replicas by broker; ``count_balancing``, ``weight_balancing``: the algorithms
* ``plans``: long-running changes of replica assignments
"""
