"""Scripted clients of a simulated cluster.

They send single requests, check results, or speak protocols that ``kreplica.client`` does not.

* ``wire_client``: single requests to one broker; ``leader_client``: to the leader of a partition;
  ``coordinator_client``: to the coordinator of a group or transactional ID
* ``fetched_records``: the records in Fetch responses
* ``idempotent_producer``: a producer of one topic; ``pipelining_producer``: handles errors like librdkafka or Java
* ``transactional_producer``: transactions with the protocols of Kafka 3 and 4
* ``tailing_consumer``: a consumer of one partition
"""
