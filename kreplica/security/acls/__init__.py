"""Kafka's access control lists, without I/O.

* ``acl``: ACLs, resource patterns and filters
* ``rules``: all ACLs of a cluster, and the decisions that follow from them
* ``authorizer``: the authorizer of a broker, with super users and a cache
* ``explanation``: the reason for a decision
* ``znodes``: names and data of ACLs in ZooKeeper
"""
