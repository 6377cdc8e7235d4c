"""Reads, searches, follows and writes records of topics through the leaders of their partitions.

* ``reading``: ``MessageReader``: pages of records; start here
* ``fetching``: fetches from all leaders; ``scanning``: filters a fetched chunk in a worker thread;
  ``searching``: predicates for records
* ``positions``: page tokens; ``tailing``: live records; ``writing``: single records
"""
