"""Consumes records.

* ``consumer``: ``Consumer``; ``options``, ``records``: its options and results
* ``consume_flow``: all assigned partitions, and the components that fetch and deliver their records:
  ``position_validation`` (start offsets and checks after leader changes), ``fetcher`` (Fetch requests), ``delivery``
* ``positions``, ``fetch_buffer``: position and fetched records of one partition
* ``subscription``, ``committing``: assignment by a group, and commits
* ``handler_run``: calls handlers concurrently
* ``waiters``: wakes coroutines that wait for a change
"""

from kreplica.client.consumer.consumer import Consumer
from kreplica.client.consumer.options import Concurrency, ConsumerOptions, OffsetReset
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord

__all__ = [
    "Concurrency",
    "ConsumedBatch",
    "ConsumedRecord",
    "Consumer",
    "ConsumerOptions",
    "OffsetReset",
]
