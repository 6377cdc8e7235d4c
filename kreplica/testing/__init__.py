"""Deterministic simulation of whole clusters, pytest fixtures, and black-box verification of a running cluster.

* ``simulator``: hosts, processes, network, disks and clocks in memory: one seed gives one execution
* ``cluster``: brokers and their ZooKeeper server on simulated hosts, and the invariants checked after every event
* ``clients``: scripted clients of such a cluster; ``histories``: records of their requests and responses
* ``storms``: clusters under load with faults from a seed (``kreplica simulate``)
* ``anomalies``: finds violated guarantees in a history of sends and polls
* ``verification``: black-box check of a running cluster (``kreplica verify``)
* ``replay``: repeats a controller's decisions from its journal and compares them (``kreplica replay``)
* ``fixtures``: the pytest plugin and its clusters, real and simulated
"""
