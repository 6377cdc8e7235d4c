"""Mutation score of the tests: each guard of the product is disabled, and the tests must detect it.

* ``__main__``, ``command`` the command line: ``python -m tests.support.mutations``
* ``scoring`` runs scenarios and storms without each guard and counts how many of them detect it
* ``guard`` defines a guard and how to disable it; ``guards`` and ``*_guards`` list them
* ``scenarios`` one scripted, rare order of events for each guard
"""
