"""Why something is as it is: what is known of it, gathered here, and explained by pure functions.

* ``explanation`` what an explanation is made of, and its schema; times and lists in words
* ``partition_facts`` what is known of a partition, ``partitions`` what that means
* ``groups`` what a group's coordinator says of it, and what that means
* ``plans`` what holds a plan up
* ``decisions`` what brokers remember to have decided
"""
