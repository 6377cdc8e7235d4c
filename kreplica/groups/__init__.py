"""Group coordinator: membership, partition assignments and committed offsets of consumer groups.

A group is coordinated by the leader of one partition of ``__consumer_offsets``. The state in memory is the state
committed to that partition, so the next leader continues from the same state.

* ``coordinator``, ``consumer_coordinator``: entry points for request handlers
* ``shard``: groups and offsets of one partition of ``__consumer_offsets``
* ``offsets``: committed offsets; ``offset_commits``: authorization of commits; ``offset_expiry``: retention
* ``records``, ``consumer_records``: on-disk format
* ``memory_limits``: memory accounting of groups and members
* ``diagnostics``: members that a rebalance is waiting for
* ``lag``: consumer lag and its status (pure); ``lag_tracking``: periodic sampling of commits
* ``classic``: the JoinGroup/SyncGroup protocol; ``consumer``: the KIP-848 protocol
"""
