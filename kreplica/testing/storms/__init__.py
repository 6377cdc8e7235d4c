"""Storms: a cluster under load, faults from a seed, checks after every event; then everything must come back.

* ``storm`` carries out a plan: start here; ``outcome`` one storm from its seed to its verdict
* ``sweep`` many seeds; ``child`` a process for each storm
* ``options`` what a seed chooses of the circumstances; ``plan`` what is to go wrong, and when, as data
* ``faults`` what can go wrong, a function each
* ``minimize`` the fewest faults with which a storm still fails
* ``replicated_run`` the cluster, its load, and what scripted tests do to it
* ``companion`` what may be there besides: ``loose_clients``, to whom less is promised; ``readers`` that come and go;
  ``side_topics`` that do, each partition with clients of its own (``side_partition``, ``side_clients``)
* ``chain`` consume, transform, produce in transactions, and a plain group; ``chain_clients`` who does that, ``seats``
  places in a group, in each of which one process after the other works
* ``applications`` programs that use the client library, as its users write them
* ``expected`` what may be, after what administrators asked for
* ``scenarios`` rare orders of events, a script each; ``guards`` and ``coordinator_guards`` the rules that they are
  about, and ``guard`` how to be without one
* ``mutations`` what notices that a guard is not there
* ``journals`` of controllers, replayed; ``log_watch`` what no program may log; ``burial`` what killed ones leave behind
"""
