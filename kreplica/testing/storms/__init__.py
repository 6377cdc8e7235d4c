"""Storms: simulated clusters under load, with faults that a seed selects.

Invariants are checked after every event. When the faults are over, the cluster must recover.

* ``storm``: executes a plan: start here; ``outcome``: runs one storm from its seed to its result
* ``sweep``: many seeds; ``child``: a process for each storm
* ``options``: the parameters that a seed selects; ``plan``: the faults and their times, as data
* ``faults``: one function for each type of fault
* ``minimize``: removes faults that are not needed to make a storm fail
* ``replicated_run``: the cluster with clients of its main topic, also used by scripted tests; ``cluster_run``: base
* ``clients``: further topics, groups and transactions; ``applications``: programs that use the client library
* ``expected_state``: states that are allowed after an administrator's requests
* ``journals``: replays the journals of the controllers; ``log_watch``: fails a storm that logs an error
* ``cleanup``: collects killed processes between storms
"""
