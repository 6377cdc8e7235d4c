"""Client quotas: which one applies, how much of it is used, and how clients are slowed down; limits of connections.

* ``throttle_time``: how long a client is throttled: measured rates and token buckets
* ``client_quotas``: the quotas of a broker's clients, and their use
* ``muted_connections``: connections that are not read for a while
* ``throttling``, ``throttled_clients``, ``throttle_events``: slow down a client, and record it
* ``throttled_handlers``: byte rates of producers and request percentages, for a table of handlers
* ``fetch_quota``: byte rates of consumers
* ``limited_mutations``: creations and deletions of partitions
* ``connection_limits``: number and creation rate of connections
"""
