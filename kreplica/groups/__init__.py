"""The coordinator of consumer groups: who is a member, what each was assigned, and which offsets were committed.

A group is coordinated by the broker that leads one partition of ``__consumer_offsets``: its state in memory is what is
committed in that partition, so that whoever leads it next goes on where this broker stopped.

* ``coordinator``: ``GroupCoordinator``: what handlers of requests call; ``config``: what it is told of settings
* ``shard``: ``GroupShard``: groups and offsets of one partition
* ``group``: ``Group``: what both kinds of groups have in common
* ``records``: keys and values of ``__consumer_offsets``
* ``offsets``: ``Offsets``: committed offsets, in memory and on their way into the log
* ``offset_commits``: who may commit them, and how that ends
* ``expiry``: offsets that go, and groups with them
* ``waits``: whom a group waits for, and until when
* ``lag``: how far a group is behind and whether that is trouble, pure; ``lag_tracking``: the same as time goes by
* ``classic/``: groups whose members share out the partitions themselves (JoinGroup, SyncGroup)
* ``consumer/``: groups whose partitions the coordinator shares out (KIP-848); ``consumer_records``: theirs
"""
