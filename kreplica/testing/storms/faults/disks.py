"""Disks that are full, or that fail."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.simulator.disk import CAPACITY_BYTES, MemoryDisk
from kreplica.testing.simulator.offload import DELAY_S
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.testing.storms.faults.fault import End, some_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

LEFT_BYTES_MAX = 3000
OPENS_MAX = 30
DELAYS_S = (0.1, 0.5, 3.0)


def run_out_of_space(run: ReplicatedRun, random: Random) -> End:
    """A broker's disk has room for a few more records."""
    disk = run.machine(random.choice(sorted(run.cluster.brokers))).host.disk
    _leave(disk, random.randrange(LEFT_BYTES_MAX))

    def end() -> None:
        disk.capacity_bytes = CAPACITY_BYTES

    return end


def run_out_of_space_everywhere(run: ReplicatedRun, random: Random) -> End:
    """Every broker's disk has room for a few more records, each for another number of them."""
    disks = [run.machine(broker).host.disk for broker in sorted(run.cluster.brokers)]
    for disk in disks:
        _leave(disk, random.randrange(LEFT_BYTES_MAX))

    def end() -> None:
        for disk in disks:
            disk.capacity_bytes = CAPACITY_BYTES

    return end


def fill_follower(run: ReplicatedRun, random: Random) -> End | None:
    """The disk of an in-sync follower is full at once: its leader waits for it until it leaves the ISR."""
    followers = run.followers(random.randrange(len(run.keys)))
    if not followers:
        return None
    broker = random.choice(followers)
    run.tell(f"the disk of broker {broker} is full")
    disk = run.machine(broker).host.disk
    _leave(disk, 0)

    def end() -> None:
        disk.capacity_bytes = CAPACITY_BYTES

    return end


def _leave(disk: MemoryDisk, left_bytes: int) -> None:
    """Let a disk have room for so much more."""
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free + left_bytes


def fail_to_sync(run: ReplicatedRun, random: Random) -> End | None:
    """A sync fails once: the directory goes offline, and stays so until a restart with a mended disk.

    Only where nothing can be lost by it: who was in sync besides may be without power, with the end of its logs lost.
    """
    broker = some_broker(run, random)
    if broker is None or not (run.synced or run.survives(broker)):
        return None
    run.tell(f"a sync of broker {broker} fails")
    run.lost[broker] = None  # it takes its own logs for incomplete from then on
    mend = run.machine(broker).host.disk.fail("sync", f"{DATA_DIRECTORY}/logs/*", errno.EIO, times=1)
    return lambda: _restart_mended(run, broker, mend)


def run_out_of_descriptors(run: ReplicatedRun, random: Random) -> End | None:
    """Files that a broker opens it cannot open, so many are open already: it is well again by itself after that."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    count = random.randint(1, OPENS_MAX)
    run.tell(f"broker {broker} cannot open {count} files")
    return run.machine(broker).host.disk.fail("open", f"{DATA_DIRECTORY}/*", errno.EMFILE, times=count)


def _restart_mended(run: ReplicatedRun, broker: int, mend: Callable[[], None]) -> None:
    mend()
    if run.machine(broker).running:
        run.kill(broker)
    run.launch(broker)


def slow_down(run: ReplicatedRun, random: Random) -> End | None:
    """A broker's disk takes its time: syncs and cold reads above all."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    offload = run.machine(broker).host.offload
    delay_s = random.choice(DELAYS_S)
    run.tell(f"the disk of broker {broker} takes up to {delay_s} s")
    offload.delay_s = (0.0, delay_s)

    def end() -> None:
        if offload.delay_s == (0.0, delay_s):  # else another such fault goes on
            offload.delay_s = DELAY_S

    return end


def flip_bit(run: ReplicatedRun, random: Random) -> None:
    """Bad media: a bit of a replica's segment, where another replica in sync has what it was."""
    broker = random.choice(sorted(run.cluster.brokers))
    if not run.survives(broker):
        return
    disk = run.machine(broker).host.disk
    segments = _segments(run, broker)
    if not segments:
        return
    path = random.choice(segments)
    synced = disk.synced_size(path)
    if synced:
        position = random.randrange(synced)
        run.tell(f"a bit of broker {broker} flips: {path}, position {position}")
        run.lost[broker] = None
        disk.flip_bit(path, position, random.randrange(8))


def fail_to_read(run: ReplicatedRun, random: Random) -> End | None:
    """A segment cannot be read for a while, where another replica in sync can be.

    Where the whole directory was given up, its broker is started again.
    """
    broker = some_broker(run, random)
    segments = _segments(run, broker) if broker is not None else []
    if broker is None or not segments or not run.survives(broker):
        return None
    run.lost[broker] = None
    machine = run.machine(broker)
    path = random.choice(segments)
    run.tell(f"broker {broker} cannot read {path}")
    mend = machine.host.disk.fail("read", path, errno.EIO)

    def end() -> None:
        mend()
        if machine.running and any(each.offline is not None for each in machine.program.directories.directories):
            run.kill(broker)
            run.launch(broker)

    return end


def _segments(run: ReplicatedRun, broker: int) -> list[str]:
    """The segments of a broker's replicas that hold something."""
    disk = run.machine(broker).host.disk
    found = []
    for key in run.keys:
        directory = f"{DATA_DIRECTORY}/logs/{key}"
        if disk.is_directory(directory):
            paths = [f"{directory}/{name}" for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX)]
            found += [path for path in paths if disk.stored(path)]
    return found
