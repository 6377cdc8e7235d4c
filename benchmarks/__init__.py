"""Benchmarks: ``python -m benchmarks [names] [--scale quick|full] [--json PATH]``, or ``make bench``.

* ``__main__`` finds the modules below, runs each in a separate process, prints tables, writes JSON
* ``tables`` formats rows as Markdown
* ``broker`` throughput, latency, request rate and idle connections of one broker process
* ``blocking`` throughput and CPU time of the blocking client
* ``start`` time from the start of the process to the first acknowledged record, and memory
* ``cluster`` three broker processes and a real ZooKeeper: failures, wide topics, replicated records
* ``controller`` one controller with simulated brokers: cost of each event, up to 100,000 partitions
* ``simulated_brokers`` brokers that confirm every command
* ``growth`` costs of requests and starts, and memory, as partitions, connections, groups and data grow
* ``growth_subjects`` the brokers; ``growth_topics``, ``growth_groups`` their contents; ``growth_starts`` restarts
* ``growth_load`` prebuilt requests, and the broker's cost per request
* ``efficiency`` the broker's CPU time compared with ``server.c``, a C program that makes the same system calls
* ``hand_overs`` the path of one record through sockets and processes; ``hand_over_stamps`` a broker that records it
* ``codec`` frequent messages: the codec compiled from schemas compared with handwritten code in ``by_hand``
* ``broker_process`` a broker as a subprocess, with its CPU time and memory
* ``driver`` the load program: ``load.c`` with librdkafka, or ``python_load`` if it cannot be compiled
* ``raw_client`` a few requests on a plain socket

Every module with a function ``run`` is a benchmark; it returns rows (dictionaries).
"""
