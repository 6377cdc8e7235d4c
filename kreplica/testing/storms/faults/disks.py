"""Disks that are full, or that fail."""

from __future__ import annotations

import errno
from random import Random

from kreplica.testing.disk import CAPACITY_BYTES
from kreplica.testing.simulation import DATA_DIRECTORY
from kreplica.testing.storms.faults.fault import End, some_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

LEFT_BYTES_MAX = 3000


def run_out_of_space(run: ReplicatedRun, random: Random) -> End:
    """A broker's disk has room for a few more records."""
    disk = run.machine(random.choice(sorted(run.cluster.brokers))).host.disk
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free + random.randrange(LEFT_BYTES_MAX)

    def end() -> None:
        disk.capacity_bytes = CAPACITY_BYTES

    return end


def fail_to_sync(run: ReplicatedRun, random: Random) -> End | None:
    """A sync fails once: the directory goes offline, and stays so until a restart with a mended disk."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    run.tell(f"a sync of broker {broker} fails")
    run.lost[broker] = None  # it takes its own logs for incomplete from then on
    disk = run.machine(broker).host.disk
    disk.fail("sync", f"{DATA_DIRECTORY}/logs/*", errno.EIO, times=1)

    def end() -> None:
        disk.mend()
        if run.machine(broker).running:
            run.kill(broker)
        run.launch(broker)

    return end
