"""Additional readers of the main topic; they must receive the same records as other readers."""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred

from kreplica.testing.clients.wire_client import FETCH_SIZE_MAX
from kreplica.testing.storms.clients.readers import HighWatermarkWatcher, RackAwareReader
from kreplica.testing.storms.cluster_run import RACKS
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun

SIZES_MAX = (1, 300, 5000, FETCH_SIZE_MAX)


def read_everything(run: ReplicatedRun, random: Random) -> End:
    """Read a partition from its first record, with small or large fetches, from the leader or a near replica."""
    key, size_max = random.choice(run.keys), random.choice(SIZES_MAX)
    rack = random.choice(("", *RACKS)) if run.racks else ""
    run.note(f"{key} is read, {size_max} bytes per fetch" + (f", from rack {rack}" if rack else ""))
    return _until_end(run, run.readers.start_reader(key, rack=rack, size_max=size_max))


def watch_high_watermark(run: ReplicatedRun, random: Random) -> End:
    return _until_end(run, run.readers.watch_high_watermark(random.choice(run.keys)))


def _until_end(run: ReplicatedRun, client: RackAwareReader | HighWatermarkWatcher) -> End:
    def end() -> None:
        Deferred.fromCoroutine(client.abandon()).addErrback(run.record_failure)

    return end
