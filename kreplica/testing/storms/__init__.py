"""Storms: a cluster under load, with faults from a seed.

Invariants are checked after every event. When the faults are over, the cluster must recover.

* ``storm`` executes a plan: start here; ``outcome`` runs one storm from its seed to its verdict
* ``sweep`` many seeds; ``child`` a process for each storm
* ``options`` the parameters that a seed chooses; ``plan`` the faults and their times, as data
* ``faults`` one function for each kind of fault
* ``minimize`` finds a smaller set of faults with which a storm still fails
* ``replicated_run`` the cluster with its main topic, also used by scripted tests
* ``clients`` further topics, groups and transactions; ``applications`` programs that use the client library
* ``expected_state`` states that are allowed after an administrator's requests
* ``journals`` replays the journals of the controllers; ``log_watch`` fails a storm that logs an error
* ``cleanup`` collects killed processes between storms
"""
