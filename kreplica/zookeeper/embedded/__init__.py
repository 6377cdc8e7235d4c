"""Embedded ZooKeeper-protocol server for a single machine, tests and simulations.

State, without I/O: ``znode``, ``tree``, ``access`` (ACLs), ``watches``, ``sessions``.

Durability:

* ``store``: the store interface and its values
* ``sqlite_store``: the store used in production
* ``disk_store``: the simulator's store, on the ``Disk`` interface
* ``commits``: group commit

Protocol:

* ``connection``: framing and backpressure
* ``dispatch``: table of operations
* ``authentication``: addAuth, SASL, and the rejection of unauthenticated clients
* ``operations``: decodes write operations in place
* ``reads``, ``writes``, ``session_requests``: request handlers
* ``four_letter_words``: status commands
* ``serving``: ``ServerFactory``: wiring and timers
* ``server``: ``EmbeddedZooKeeper``: start and stop
"""
