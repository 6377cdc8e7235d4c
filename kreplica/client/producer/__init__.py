"""A producer: records in, batches out, with retries that write nothing twice.

* ``producer`` the ``Producer``; ``options`` how it writes
* ``gathering`` records become batches; ``newcomers`` those whose topic is not known yet; ``records`` what both delay;
  ``promises``, ``written`` and ``countdown``: what becomes of them
* ``sending`` batches go to leaders, over ``routes``
* ``identity`` who an idempotent producer is; ``transactions`` the same, and more, of a transactional one
"""

from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.producer import Producer
from kreplica.client.producer.record_batch import OutgoingRecord
from kreplica.client.producer.written import Written

__all__ = ["OutgoingRecord", "Producer", "ProducerOptions", "Written"]
