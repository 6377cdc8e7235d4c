"""Produces records in batches; retries of an idempotent producer write no duplicates.

* ``producer``: ``Producer``; ``options``: its options; ``written_record``: the result for one record
* ``accumulator``: collects records in batches; ``pending_metadata``: records of topics without metadata;
  ``record_batch``: records and batches; ``record_deferreds``, ``completion_counter``: notification of outcomes
* ``sender``: sends batches to leaders; ``leader_routes``: requests in flight per leader
* ``producer_id``: identity of an idempotent producer; ``transactions``: identity and state of a transactional one
"""

from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.producer import Producer
from kreplica.client.producer.record_batch import OutgoingRecord
from kreplica.client.producer.written_record import Written

__all__ = ["OutgoingRecord", "Producer", "ProducerOptions", "Written"]
