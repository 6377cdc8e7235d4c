"""Scripted clients that only tests and benchmarks use.

* ``group_member`` a member of a classic group, without timers; ``group_history`` checks the responses it receives
* ``consumer_member`` a member of a consumer group (KIP-848), without timers
* ``isolated_consumer`` a consumer of one partition with an isolation level
"""
