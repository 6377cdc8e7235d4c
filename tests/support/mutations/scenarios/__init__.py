"""Scenarios with a rare order of events, one function each, that fail if one rule is disabled.

Each function takes a seed.  It succeeds for every seed with all rules in place, and fails without the rule that names
it in ``guards`` or ``*_guards``.

* ``scene`` the cluster of most scenarios and the faults that can be injected: start here
* ``commands`` controller commands that arrive late: at another process, in another epoch, from a former controller
* ``joining`` replicas that join or leave the ISR
* ``leading`` leaders with too few in-sync replicas, with another possible leader, or after losing leadership
* ``logs`` truncation, power loss and damage
* ``plans`` limits on moves, throttles, and the removal of replicas
* ``producing`` producers that retry
* ``stage`` another cluster, for groups and transactions; ``groups`` stale members and coordinators;
  ``transactions`` fenced producers and late markers; ``consumer_groups`` partitions that change owners
* ``security`` permissions that change while clients use them
"""
