"""Client quotas: selection, measurement of their use, and throttling; connection limits.

* ``throttle_time``: how long a client is throttled: measured rates and token buckets
* ``client_quotas``: the quotas of a broker's clients, and their use
* ``muted_connections``: connections that are temporarily not read
* ``throttling``, ``throttled_clients``, ``throttle_events``: throttle clients, and keep a record of it
* ``throttled_handlers``: byte rates of producers and request percentages, for a table of handlers
* ``fetch_quota``: byte rates of consumers
* ``limited_mutations``: creations and deletions of partitions
* ``connection_limits``: number and creation rate of connections
"""
