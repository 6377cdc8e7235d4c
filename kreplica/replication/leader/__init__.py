"""The leader of a partition.

* ``leader_state``: appends, the followers' progress, and the rules below applied to them
* ``high_watermark``: which records are committed; ``isr_membership``: which replicas are in sync or lag
* ``isr_proposal``, ``isr_writes``, ``isr_notifications``: how a new ISR is proposed, written to ZooKeeper and announced
* ``read_replica``: which replica a consumer is sent to (KIP-392)
"""
