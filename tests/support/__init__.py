"""Support code for kreplica's own tests and benchmarks; not part of the installed package.

Clusters of real processes:

* ``process_cluster`` several broker processes: start here
* ``server_process`` one ``twistd kreplica`` process, with its subclasses in ``broker_process`` and ``standalone``
* ``coordinator`` kreplica's own coordinator as a process; ``real_zookeeper`` ZooKeeper from PySpark's jars
* ``links`` the interface for cutting and delaying connections; ``proxy`` implements it with TCP proxies, and
  ``namespaces`` with the kernel's network namespaces
* ``outside_clients`` a producer and a consumer that use librdkafka; ``blocking_client`` single blocking requests
* ``replica_files`` compares the replicas of a partition byte by byte

Scenes in one process:

* ``real_reactor`` runs coroutines on the real reactor under pytest
* ``broker_scene`` a broker and a client; ``zookeeper_scene`` ZooKeeper clients and their connections
* ``controller_scene`` a controller with scripted brokers
* ``clients`` scripted group members and consumers; ``planner`` an administrator that creates reassignment plans
* ``iterated_clock`` a clock that fires timers one at a time

Mutation score:

* ``mutations`` disables each guard of the product and reports which tests detect it
"""
