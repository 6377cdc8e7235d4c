"""kreplica: a replicated, partitioned log server on Twisted that speaks the Kafka protocol.

Packages import only packages below them (``docs/explanation/architecture.md`` has the diagram).  From the top:

* ``cli`` commands for people; ``testing`` simulation and fixtures; ``service`` the composition root
* ``server`` listeners, dispatch, one handler per API
* ``replication``, ``controller``, ``membership``, ``admin`` talk to each other only by requests and znodes
* ``storage`` log on disk; ``client`` Twisted client; ``zookeeper`` client and embedded coordinator
* ``transfer`` rules shared by commands and Spark pipelines that copy records
* ``blocking`` a client without a reactor, over ``wire`` alone
* ``settings``, ``wire``, ``cluster`` names and defaults; the protocol without I/O; znode formats and placement
* ``model``, ``errors``, ``runtime`` frozen values; error codes; the seams to clock, disk, network and randomness
"""

__version__ = "0.1.0"
