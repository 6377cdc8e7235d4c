"""The fetch path: sessions, reads of partitions, and fetches that wait for data.

* ``handler``: reads the requested partitions and waits if there is too little data
* ``partition``: one partition of a fetch; ``partition_reads``: reads its records
* ``sessions``: fetch sessions (KIP-227)
"""
