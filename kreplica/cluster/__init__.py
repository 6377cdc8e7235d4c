"""What a cluster is made of, as pure functions: names, documents, places.  Nothing here talks to ZooKeeper.

* ``topic_names`` which names a topic may have
* ``znodes`` paths and JSON documents, both ways
* ``eligible_leaders`` who may lead although it left the in-sync set (KIP-966)
* ``placement`` where the replicas of new partitions go
* ``rebalance`` where replicas go when brokers come or leave, with the least data moved
* ``exchanges`` evening out at the least cost; ``held_replicas`` what it evens out
"""
