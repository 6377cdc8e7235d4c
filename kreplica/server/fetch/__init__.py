"""The fetch path: sessions, reads of partitions, and fetches that wait for data.

* ``handler``: authorizes requests and updates sessions; ``delayed_fetch``: reads partitions, and waits for enough data
* ``partition``: one partition of a fetch; ``partition_reads``: reads its records
* ``sessions``: fetch sessions (KIP-227)
"""
