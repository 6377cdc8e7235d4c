"""Clients and topics of a storm besides the main topic.

* ``companion``: their common interface
* ``weak_producers``: clients with weaker guarantees; ``readers``: short-lived readers
* ``side_topics``: topics that are created, extended and deleted; ``side_partition`` and ``incarnation_clients``: their
  clients
"""
