"""Storage of partition logs in Kafka's on-disk format. No network access.

Sub-packages; each imports only those after it: ``directories`` log directories of a broker, their checkpoints, and
periodic work; ``compaction`` of logs; ``log`` one partition's log; ``inspection`` of files offline; ``recovery`` of a
log after a restart; ``durability`` group commit and syncs; ``segments`` files and indexes; ``producers`` idempotence
and transactions; ``formats`` of small files.
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
