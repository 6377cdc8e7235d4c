"""Explains states: collects facts and derives explanations with pure functions.

* ``explanation`` the structure of an explanation and its schema
* ``partition_facts`` facts of a partition; ``partitions``, ``groups``, ``plans``, ``brokers`` the explanations
* ``access`` whether a user may perform an operation
* ``decisions`` the decisions that brokers have in memory
"""
