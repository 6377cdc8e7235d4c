"""Storage of partition logs in Kafka's on-disk format. No network access.

Each sub-package imports only those after it:

* ``directories``: log directories of a broker, their checkpoints, and periodic work
* ``compaction``: compaction of logs
* ``log``: the log of one partition
* ``inspection``: read-only checks of log files
* ``recovery``: recovery of a log after a restart
* ``durability``: group commit and syncs
* ``segments``: files and indexes
* ``producers``: idempotence and transactions
* ``formats``: formats of small files
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
