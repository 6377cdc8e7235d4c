"""What a cluster is made of, as pure functions: names, documents, places.  Nothing here talks to ZooKeeper.

* ``topic_names`` which names a topic may have
* ``znodes`` where everything stands in ZooKeeper
* ``documents`` what stands there, both ways; ``partition_requests`` the same for requests to add or remove partitions
* ``json_documents`` reading and writing JSON, with errors that name the znode
* ``uuids`` ids of topics and clusters
* ``eligible_leaders`` who may lead although it left the in-sync set (KIP-966)
* ``new_topics`` what is asked for of a topic that is to be made
* ``placement`` where the replicas of new partitions go
* ``rebalance`` where replicas go when brokers come or leave, with the least data moved
* ``plans`` longer work on replicas, kept until it is done; ``cordons`` brokers that get no new replicas
* ``exchanges`` evening out at the least cost; ``held_replicas`` what it evens out
"""
