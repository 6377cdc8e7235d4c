"""Clients that come and go while everything fails: what they are given must agree with what others are."""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred

from kreplica.testing.clients.wire_client import FETCH_SIZE_MAX
from kreplica.testing.storms.clients.readers import EndWatcher, PickyReader
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import RACKS, ReplicatedRun

SIZES_MAX = (1, 300, 5000, FETCH_SIZE_MAX)


def read_everything(run: ReplicatedRun, random: Random) -> End:
    """Somebody reads a partition from its first record on, maybe bit by bit, maybe from a replica that is near."""
    key, size_max = random.choice(run.keys), random.choice(SIZES_MAX)
    rack = random.choice(("", *RACKS)) if run.racks else ""
    run.tell(f"{key} is read, {size_max} bytes at a time" + (f", from rack {rack}" if rack else ""))
    return _until_end(run, run.readers.read(key, rack=rack, size_max=size_max))


def watch_end(run: ReplicatedRun, random: Random) -> End:
    """Somebody asks again and again where a partition ends."""
    return _until_end(run, run.readers.watch_end(random.choice(run.keys)))


def _until_end(run: ReplicatedRun, client: PickyReader | EndWatcher) -> End:
    def end() -> None:
        Deferred.fromCoroutine(client.abandon()).addErrback(run.failed)

    return end
