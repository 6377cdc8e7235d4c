"""Kafka's on-disk format and everything that happens in it.  No network here.

A broker's data, from the outside in:

* ``directories`` all log directories of a broker, and the periodic work
* ``directory`` one log directory: lock, identity, logs, failure
* ``checkpointed_directory`` its checkpoints, and the logs that wait for them
* ``directory_files`` its identity and its checkpoints
* ``new_directories`` making its logs' directories
* ``opening`` opening its logs on other threads
* ``names`` the names of directories in it
* ``cleaner`` which log is compacted next
* ``coalescing`` work that many ask for and one run serves
* ``removals`` deleting files later, away from the reactor
* ``flushing`` group commit: syncing many logs away from the reactor

A log, from the outside in:

* ``log`` one partition's log: append, retention
* ``truncatable_log`` cutting its end off
* ``durable_log`` what of it is durable: syncing, closing, failing
* ``readable_log`` its state, and reading by offset and by time
* ``results`` what a log answers to an append and to a read
* ``owner`` whom a log reports to
* ``config`` the topic settings that a log obeys, with Kafka's defaults
* ``validation`` what a leader and a follower check before they append; ``append_run`` what is written together
* ``search`` offsets by timestamp
* ``retention`` which segments may go
* ``compaction`` one pass over one log: of every key the last record stays
* ``compaction_filter`` what stays of one batch
* ``durability`` what has to be synced, handed to whoever syncs it on another thread
* ``failed_syncs`` the mark that is left where that fails

What the device did to it:

* ``damage`` finding batches that are not what was written; ``scrubbing`` looking for them all the time
* ``failed_logs`` logs that cannot be used as they are, and how they come back
* ``segments`` the segments of a log in order
* ``segment`` one file of batches with its indexes
* ``indexes`` offset -> position, timestamp -> offset
* ``scanning`` walking through the batches of a file
* ``open_segments`` a bound on open files
* ``inspection`` looking at all of this without being its broker

What a log remembers besides its batches:

* ``leader_epochs`` which leader epoch wrote which offsets
* ``producers`` sequences of idempotent producers, open transactions
* ``verifications`` pure: which transactions may begin in it, and which end markers are late
* ``producer_snapshots`` the producers, in a file
* ``aborted_transactions`` the index of aborted transactions
* ``aborted_checkpoint`` what that index held, ``aborted_recomputed`` what the batches say it has to hold
* ``index_scrubbing`` compares all indexes of a segment with its batches

Coming back after a stop, a kill or a power loss:

* ``loading`` opening and recovering one log; ``resuming`` where recovery starts after a kill
* ``leftovers`` files that an interrupted deletion or compaction left
* ``checkpoints`` the small files of a log directory
"""

from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import AppendResult, LogSlice
from kreplica.storage.log.timestamp_search import FoundOffset
from kreplica.storage.log_config import LogConfig, StorageConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.producer_state import Origin

__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "FoundOffset",
    "Log",
    "LogConfig",
    "LogDirectories",
    "LogSlice",
    "Origin",
    "StorageConfig",
]
