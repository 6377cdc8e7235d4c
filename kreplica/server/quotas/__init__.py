"""Client quotas: which one applies, how much of it is used, and how clients are slowed down.

* ``rates``: measured rates and token buckets
* ``client_quotas``: the quotas of a broker's clients, and their use
* ``muted_connections``: connections that are not read for a while
* ``throttled_handlers``: byte rates and request percentages, for a table of handlers
* ``limited_mutations``: creations and deletions of partitions
"""
