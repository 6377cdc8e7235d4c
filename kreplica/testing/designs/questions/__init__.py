"""Answers to questions that the design documents leave open, each measured in virtual time or counted.

* ``placements``: the probability that a partition is lost when brokers die, and the load that other brokers take over.
* ``routing_window``: requests that clients send to the wrong broker while leadership moves.
* ``slow_zookeeper``: all three designs, with a ZooKeeper server that is slow at its 99th percentile.
* ``stalled_replica``: the time until records are committed while one of three replicas stalls.
* ``answers``: all answers, as tables.
"""
