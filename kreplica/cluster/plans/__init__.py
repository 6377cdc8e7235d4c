"""Plans: long-running changes of replica assignments, stored in ZooKeeper until they are complete. No I/O.

* ``plan``: plans, their steps and outcomes; ``documents``: their znodes; ``requests``: requests for plans
* ``draft``: computes the steps of a requested plan from the ``cluster_state``
* ``target_replicas``: target replicas for each kind of plan; ``safety_checks``: rejections and warnings
* ``preview``: effect of a draft on each broker
* ``progress``: progress and final state; ``eta``: expected duration; ``throttle``: znode of the replication throttle
"""
