"""kreplica: a replicated, partitioned log server on Twisted that speaks the Kafka protocol.

Packages import only packages below them (``docs/explanation/architecture.md`` has the diagram).  From the top:

* ``cli``: commands; ``testing``: simulation and fixtures; ``service``: the composition root
* ``server``: listeners, dispatch, and one handler per API
* ``replication``, ``controller``, ``membership``, ``admin``: communicate with each other only by requests and znodes
* ``storage``: the log on disk; ``client``: Twisted client; ``zookeeper``: client and embedded ZooKeeper server
* ``transfer``: rules shared by the commands and Spark pipelines that copy records
* ``blocking``: a client that needs no reactor, built only on ``wire``
* ``settings``: names and defaults; ``wire``: the protocol without I/O; ``cluster``: znode formats and placement
* ``model``: immutable values; ``errors``: error codes; ``runtime``: interfaces to clock, disk, network and randomness
"""

__version__ = "0.1.0"
