"""Records out of a cluster.

* ``consumer``: ``Consumer``, what applications use
* ``options``, ``records``: what they say, and what they get
* ``flow``: all partitions that are read, and the parts that keep records coming:
  ``settling`` (where to read, and whether that is right), ``fetcher`` (asking for records), ``outlet`` (handing out)
* ``positions``, ``stock``: of one partition: how far it was read, and what was fetched and not handed out
* ``subscription``, ``committing``: what a group gives, and what is committed for it
* ``running``: handlers, and how many at the same time
* ``questions``: what is asked besides records
* ``changes``: waiting for something to change
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
