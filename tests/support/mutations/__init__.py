"""Mutation score of the tests: each guard in the product is disabled in turn, and the tests must detect this.

* ``__main__``, ``command`` the command line: ``python -m tests.support.mutations``
* ``scoring`` runs scenarios and storms without each guard and counts how many of them detect it
* ``guard`` defines a guard and how to disable it; ``guards`` and ``*_guards`` list them
* ``scenarios`` a scripted, rare order of events for each guard
"""
