"""Benchmarks: ``python -m benchmarks [names] [--scale quick|full] [--json PATH]``, or ``make bench``.

* ``__main__`` finds the modules below, runs each in a process of its own, prints tables, writes JSON
* ``tables`` rows to Markdown
* ``broker`` throughput, latency, requests per second and idle connections of one broker process
* ``blocking`` the blocking client, and what it costs itself
* ``start`` from the start of the process to the first acknowledged record, and the memory it takes
* ``cluster`` three broker processes and a real ZooKeeper: brokers die and stop, wide topics, replicated records
* ``controller`` one controller against simulated brokers: what each event costs, up to 100,000 partitions
* ``simulated_brokers`` brokers that only say yes
* ``growth`` what requests, starts and memory cost with ever more partitions, connections, groups and data
* ``growth_subjects`` the brokers that grow; ``growth_topics``, ``growth_groups`` what they have; ``growth_starts``
* ``growth_load`` requests made beforehand, and what a broker spends on each
* ``efficiency`` the broker's CPU time against ``server.c``, a C program that makes the same system calls
* ``codec`` hot messages, compiled from their schemas, against code written by hand, which is in ``by_hand``
* ``broker_process`` a broker as a subprocess, with its CPU time and memory
* ``driver`` the load program: ``load.c`` on librdkafka, or ``python_load`` where that cannot be compiled
* ``raw_client`` a few requests on a plain socket

Every module with a function ``run`` is a benchmark; it returns rows (dictionaries).
"""
