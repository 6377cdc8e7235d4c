"""Worlds for tests: everything below a broker simulated, with faults between any two steps, from one seed.

* ``simulation`` hosts, their clocks and processes: start here
* ``cluster`` a coordinator and brokers on such hosts, by the very composition root
* ``cluster_state`` what its files and znodes say
* ``planner`` an administrator who makes plans for it
* ``invariants`` what must hold after every event; ``committed_log`` what was ever committed
* ``wire_client``, ``leader_client``, ``idempotent_producer``, ``tailing_consumer`` clients of it
* ``pipelining_producer`` a client that reacts to errors as librdkafka or the Java client does
* ``coordinator_client``, ``group_member``, ``group_consumer``, ``consumer_member``, ``transactional_producer``,
  ``processor`` those of groups and transactions; ``isolation`` what readers are shown of these
* ``histories``, ``group_history``, ``transaction_history`` what they were told; ``anomalies`` what is wrong with that
* ``scheduler`` virtual time and the queue of events
* ``reactor`` Twisted's reactor for one process; ``readiness`` who is told that a socket can be used; ``transports``
  Twisted's ports and connections
* ``sockets`` the kernel's part of TCP; ``network`` links, partitions, who listens where
* ``offload`` work that blocks
* ``disk`` and ``memory_file`` files in memory; ``content`` and ``namespace`` what a power loss leaves of them
* ``faults`` what is to fail
* ``replay`` a controller's journal, decided again: start here.  ``replay_reading`` its files; ``replay_world``,
  ``replay_start`` what the controller is given; ``replay_script`` what is compared; ``replay_story``,
  ``replay_difference`` both in words
* ``real_reactor`` coroutines on the process's real reactor, for pytest; ``broker_scene`` a broker and a client on it
* ``zookeeper`` a real ZooKeeper, from the jars that PySpark ships; ``zookeeper_scene`` clients and links for scenarios
* ``controller_scene`` a controller, and brokers that do as they are told by the test
* ``fixtures`` clusters for the tests of any Kafka application, and the pytest plugin

Real processes, on real sockets and disks:

* ``server_process`` one ``twistd kreplica`` command; ``standalone``, ``broker_process`` two; ``coordinator`` another
* ``process_cluster`` several brokers: start here; ``replica_files`` whether their replicas are the same
* ``links`` what cuts and slows the ways between them; ``proxy`` through which they then lead; ``namespaces`` the
  kernel's own means, where they are permitted
* ``outside_clients`` a producer and a reader that nobody here wrote; ``blocking_client`` single requests
* ``verification`` a black-box check of anybody's cluster
"""
