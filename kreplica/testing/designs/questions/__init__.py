"""Answers to questions that the design documents leave open, each measured in virtual time or counted.

* ``placements``: the probability that dead brokers lose a partition, and the load that each other broker takes.
* ``routing_window``: clients that ask the wrong broker while a leadership moves.
* ``slow_zookeeper``: all three designs, with a ZooKeeper server that is slow at its 99th percentile.
* ``stalled_replica``: the time until records are committed while one of three replicas stalls.
* ``answers``: all of them as tables.
"""
