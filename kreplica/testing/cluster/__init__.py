"""Simulated cluster: a ZooKeeper server and brokers built by the product's own composition root.

* ``cluster``: starts, stops and kills its processes: start here
* ``state``: reads its files and znodes
* ``invariants``: checks after every event; ``committed_log``: all records that were ever committed
"""
