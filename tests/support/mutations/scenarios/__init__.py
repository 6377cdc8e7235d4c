"""Rare orders of events, one function each, that fail without one rule of replication.

Each function takes a seed.  It succeeds for every seed with all rules in place, and fails without the rule that
``guards`` names it for.

* ``scene`` the cluster of most scenarios and the faults that can be injected: start here
* ``commands`` that arrive late: at another process, in another epoch, from a former controller
* ``joining`` the in-sync set and leaving it
* ``leading`` with too few in-sync replicas, with another possible leader, or after losing leadership
* ``logs`` truncation, power loss and damage
* ``plans`` limits of moves and throttles, and the removal of replicas
* ``producing`` retries of producers
* ``stage`` another cluster, for groups and transactions; ``groups`` stale members and coordinators;
  ``transactions`` fenced producers and late markers; ``consumer_groups`` partitions that change their owner
* ``security`` permissions that change while clients use them
"""
