"""Plans: longer work on replicas, kept in ZooKeeper until it is done.  Pure: nothing here talks to anybody.

* ``plan`` the values: a plan, its steps, and what has become of them
* ``documents`` those values as znodes, both ways
* ``requests`` what may be asked for
* ``making`` from a request and the state of the cluster (``cluster_state``) to a draft: its steps, or why not;
  ``placing`` where the replicas of each kind of plan go; ``dangers`` what a plan may not do, or only by force
* ``preview`` what a draft would change, broker by broker
* ``progress`` how far a plan has come; ``eta`` how long it takes; ``throttle`` how fast it may be copied, as a znode
"""
