"""Full, failing and slow disks."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random

from kreplica.service.composition.broker import Broker
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.simulator.disk import CAPACITY_BYTES, MemoryDisk
from kreplica.testing.simulator.offload import DELAY_S
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.testing.storms.faults.fault import End, random_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

FREE_BYTES_MAX = 3000
OPENS_MAX = 30
DELAYS_S = (0.1, 0.5, 3.0)


def run_out_of_space(run: ReplicatedRun, random: Random) -> End:
    """Leave space for only a few more records on a broker's disk."""
    disk = run.machine(random.choice(sorted(run.cluster.brokers))).host.disk
    return _limit_space([disk], [random.randrange(FREE_BYTES_MAX)])


def run_out_of_space_everywhere(run: ReplicatedRun, random: Random) -> End:
    """Leave space for only a few more records on every broker's disk, a different amount on each."""
    disks = [run.machine(broker).host.disk for broker in sorted(run.cluster.brokers)]
    return _limit_space(disks, [random.randrange(FREE_BYTES_MAX) for _ in disks])


def fill_follower(run: ReplicatedRun, random: Random) -> End | None:
    """Fill the disk of an in-sync follower completely: its leader waits for it until it leaves the ISR."""
    followers = run.in_sync_followers(random.randrange(len(run.keys)))
    if not followers:
        return None
    broker = random.choice(followers)
    run.note(f"the disk of broker {broker} is full")
    return _limit_space([run.machine(broker).host.disk], [0])


def _limit_space(disks: Sequence[MemoryDisk], free_bytes: Sequence[int]) -> End:
    for disk, bytes_left in zip(disks, free_bytes, strict=True):
        total, free = disk.usage(DATA_DIRECTORY)
        disk.capacity_bytes = total - free + bytes_left

    def end() -> None:
        for disk in disks:
            disk.capacity_bytes = CAPACITY_BYTES

    return end


def fail_to_sync(run: ReplicatedRun, random: Random) -> End | None:
    """Make one sync fail: the log directory goes offline until the broker restarts with a working disk.

    Does nothing if committed data could be lost, because another in-sync replica may have lost unsynced records.
    """
    broker = random_broker(run, random)
    if broker is None or not run.can_lose_power(broker):
        return None
    run.note(f"a sync of broker {broker} fails")
    run.maybe_incomplete[broker] = None  # the broker treats its logs as incomplete
    repair = run.machine(broker).host.disk.fail("sync", f"{DATA_DIRECTORY}/logs/*", errno.EIO, times=1)
    return lambda: _repair_and_restart(run, broker, repair)


def run_out_of_descriptors(run: ReplicatedRun, random: Random) -> End | None:
    """Make opening files fail a few times with ``EMFILE``, from which a broker recovers without a restart."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    count = random.randint(1, OPENS_MAX)
    run.note(f"broker {broker} cannot open {count} files")
    return run.machine(broker).host.disk.fail("open", f"{DATA_DIRECTORY}/*", errno.EMFILE, times=count)


def _repair_and_restart(run: ReplicatedRun, broker: int, repair: Callable[[], None]) -> None:
    repair()
    if run.machine(broker).running:
        run.kill(broker)
    run.launch(broker)


def slow_down(run: ReplicatedRun, random: Random) -> End | None:
    """Delay operations of a broker's disk, mainly syncs and uncached reads."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    offload = run.machine(broker).host.offload
    delay_s = random.choice(DELAYS_S)
    run.note(f"the disk of broker {broker} takes up to {delay_s} s")
    offload.delay_s = (0.0, delay_s)

    def end() -> None:
        if offload.delay_s == (0.0, delay_s):  # otherwise another fault of this type is active
            offload.delay_s = DELAY_S

    return end


def flip_bit(run: ReplicatedRun, random: Random) -> None:
    """Flip a synced bit of a segment if another in-sync replica has the data."""
    broker = random.choice(sorted(run.cluster.brokers))
    if not run.can_lose(broker):
        return
    disk = run.machine(broker).host.disk
    segments = _segments(run, broker)
    if not segments:
        return
    path = random.choice(segments)
    synced = disk.synced_size(path)
    if synced and run.is_copied(broker, path.split("/")[-2]):
        position = random.randrange(synced)
        run.note(f"a bit of broker {broker} flips: {path}, position {position}")
        run.maybe_incomplete[broker] = None
        disk.flip_bit(path, position, random.randrange(8))


def fail_to_read(run: ReplicatedRun, random: Random) -> End | None:
    """Make reads of a segment fail for a while, if another in-sync replica has the data.

    The broker is restarted at the end if the log directory went offline, or if the broker could not read records of a
    log.
    """
    broker = random_broker(run, random)
    segments = _segments(run, broker) if broker is not None else []
    if broker is None or not segments or not run.can_lose(broker):
        return None
    run.maybe_incomplete[broker] = None
    machine = run.machine(broker)
    path = random.choice(segments)
    run.note(f"broker {broker} cannot read {path}")
    repair = machine.host.disk.fail("read", path, errno.EIO)

    def end() -> None:
        repair()
        if machine.running and (run.is_damaged(broker) or _is_offline(machine.program)):
            run.kill(broker)
            run.launch(broker)

    return end


def _is_offline(program: Broker) -> bool:
    """Return True if a log directory is offline; it stays offline until a restart."""
    return any(directory.offline is not None for directory in program.directories.directories)


def _segments(run: ReplicatedRun, broker: int) -> list[str]:
    disk = run.machine(broker).host.disk
    segments = []
    for key in run.keys:
        directory = f"{DATA_DIRECTORY}/logs/{key}"
        if disk.is_directory(directory):
            paths = [f"{directory}/{name}" for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX)]
            segments += [path for path in paths if disk.stored(path)]
    return segments
