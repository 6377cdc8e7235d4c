"""Storms test the replication rules of the first two designs: random steps from a seed, checkers, minimal transcripts.

* ``rules``: the rules that can be repaired one by one, and the designs
* ``replica``: state of one replica and of ZooKeeper
* ``steps``: all steps, each with its condition and effect; ``checks``: acknowledged records
* ``storm``: steps from a seed, minimization, transcript
* ``published``: the smallest violations; ``docs/explanation/design-races.md`` explains them
"""
