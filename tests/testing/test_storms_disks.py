"""Disk faults in storms: when one fault ends, other faults of the same disk continue."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from kreplica.testing.simulator.offload import DELAY_S
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.faults import FAULTS, disks
from kreplica.testing.storms.replicated_run import SAFE, SYNCED, ReplicatedRun

PATH = "/data/of-another-fault"


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@pytest.mark.parametrize("name", ["fail to sync", "run out of descriptors", "fail to read"])
def test_the_end_of_a_disk_fault_affects_no_other_fault(name: str) -> None:
    """When a fault ends, another fault of the same disk continues."""
    run = ReplicatedRun(1)
    run.run_until_acknowledged(20)
    for broker in run.cluster.brokers:
        run.machine(broker).host.disk.fail("rename", PATH, errno.EIO)
    end = FAULTS[name][0](run, Random(1))
    assert end is not None
    end()
    for broker in run.cluster.brokers:
        disk = run.machine(broker).host.disk
        with pytest.raises(OSError, match="Input/output error"):
            disk.rename(PATH, "/data/elsewhere")
        disk.clear_faults()
    run.converge()


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_recovers_from_running_out_of_descriptors(seed: int) -> None:
    """A broker that runs out of descriptors keeps its directories online and recovers without a restart."""
    run = ReplicatedRun(seed, configs={**(SYNCED if seed % 2 else SAFE), "segment.bytes": "4000"})
    run.run_until_acknowledged(20)
    programs = {broker: run.machine(broker).program for broker in run.cluster.brokers}
    end = FAULTS["run out of descriptors"][0](run, Random(seed))
    assert end is not None
    run.run_until_acknowledged(60)
    run.cluster.run(70)
    end()
    assert not run.maybe_incomplete
    run.settle()
    for broker, program in programs.items():
        assert run.machine(broker).program is program
        assert all(directory.offline is None for directory in program.directories.directories)
    run.converge()


def test_a_slow_disk_recovers_its_speed() -> None:
    """A disk recovers its speed after overlapping faults, whichever ends first."""
    run = ReplicatedRun(1)
    ends = [FAULTS["slow disk"][0](run, Random(seed)) for seed in range(12)]
    for end in ends:
        assert end is not None
        end()
    assert all(machine.host.offload.delay_s == DELAY_S for machine in run.cluster.brokers.values())
    run.converge()


def test_one_machine_at_a_time_loses_committed_records() -> None:
    """No second machine may lose records before the first has recovered: no replica might be left with all of them."""
    run = ReplicatedRun(3)
    run.run_until_acknowledged(20)
    assert run.can_lose(1)
    assert run.can_lose(2)
    run.lose_power(1)
    assert not run.can_lose(2), "broker 1 has lost records but is still in the ISR"
    run.launch(1)
    run.settle()
    assert run.can_lose(2)
    run.converge()


def test_no_power_loss_while_another_replica_is_damaged() -> None:
    """After a power loss, the controller could elect another replica whose damage has not been detected."""
    run = ReplicatedRun(3, configs=SYNCED)
    run.run_until_acknowledged(20)
    assert run.can_lose_power(2)
    machine = run.machine(1)
    path = next(path for path in disks._segments(run, 1) if machine.host.disk.synced_size(path))
    machine.host.disk.flip_bit(path, machine.host.disk.synced_size(path) - 1, 0)
    run.maybe_incomplete[1] = None
    assert not run.can_lose_power(2)
    assert run.can_lose_power(1), "the damaged replica itself may lose power"
    run.lose_power(1)
    run.launch(1)
    run.settle()
    assert run.can_lose_power(2)
    run.converge()
