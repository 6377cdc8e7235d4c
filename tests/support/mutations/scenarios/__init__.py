"""Rare orders of events, one function each: how what every rule of replication is for comes about.

Each is given a seed, ends well with all rules in place whatever the seed, and badly without the rule that
``guards`` names it for.

* ``scene`` the cluster that all begin with, and what may be done to it: start here
* ``commands`` that come late: to another process, in another epoch, from a controller that is none any more
* ``joining`` and leaving the in-sync set
* ``leading`` with too few in sync, with others that may lead, or when it may lead no more
* ``logs`` what they may be cut to, and what a power loss leaves of them
* ``plans`` how many moves there are at once, who is slowed by them, and who may leave when
* ``producing`` what producers send again
* ``stage`` another cluster, for groups and transactions; ``groups`` members and coordinators that speak of what is
  over; ``transactions`` producers that were replaced, and what comes late of them;
  ``consumer_groups`` partitions that change hands
"""
