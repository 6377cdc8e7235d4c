"""Scripted clients of a simulated cluster.

* ``wire_client`` single requests; ``leader_client`` requests to the leader of a partition
* ``idempotent_producer``, ``pipelining_producer``, ``tailing_consumer`` producers and a consumer of one topic
* ``coordinator_client``, ``group_member``, ``group_consumer`` members of classic groups
* ``transactional_producer``, ``processor`` transactions; ``isolation`` consumers with an isolation level
"""
