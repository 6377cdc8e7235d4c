"""Kafka's on-disk format and everything that happens in it.  No network here.

A log, from the outside in:

* ``log`` one partition's log: append, read, truncate, retention, what is durable
* ``config`` the topic settings that a log obeys, with Kafka's defaults
* ``validation`` what a leader and a follower check before they append
* ``search`` offsets by timestamp
* ``retention`` which segments may go
* ``durability`` what has to be synced, handed to whoever syncs it on another thread
* ``segments`` the segments of a log in order
* ``segment`` one file of batches with its indexes
* ``indexes`` offset -> position, timestamp -> offset
* ``scanning`` walking through the batches of a file
* ``open_segments`` a bound on open files

What a log remembers besides its batches:

* ``leader_epochs`` which leader epoch wrote which offsets
* ``producers`` sequences of idempotent producers, open transactions
* ``producer_snapshots`` the same, in a file
* ``aborted_transactions`` the index of aborted transactions

Coming back after a stop, a kill or a power loss:

* ``loading`` opening and recovering one log
* ``leftovers`` files that an interrupted deletion or compaction left
* ``checkpoints`` the small files of a log directory
"""
