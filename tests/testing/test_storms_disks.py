"""Disks that fail in storms: what ends one fault leaves the others of that disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from kreplica.testing.simulator.offload import DELAY_S
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.faults import FAULTS
from kreplica.testing.storms.replicated_run import SAFE, SYNCED, ReplicatedRun

PATH = "/data/of-another-fault"


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@pytest.mark.parametrize("name", ["fail to sync", "run out of descriptors", "fail to read"])
def test_a_fault_of_a_disk_ends_alone(name: str) -> None:
    """Another that was planted on the same disk goes on until its own end."""
    run = ReplicatedRun(1)
    run.acknowledge(20)
    for broker in run.cluster.brokers:
        run.machine(broker).host.disk.fail("rename", PATH, errno.EIO)
    end = FAULTS[name][0](run, Random(1))
    assert end is not None
    end()
    for broker in run.cluster.brokers:
        disk = run.machine(broker).host.disk
        with pytest.raises(OSError, match="Input/output error"):
            disk.rename(PATH, "/data/elsewhere")
        disk.mend()
    run.converge()


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_that_ran_out_of_descriptors_is_well_again_by_itself(seed: int) -> None:
    """No directory is given up for it, nobody has to start it again, and every replica is in sync in the end."""
    run = ReplicatedRun(seed, configs={**(SYNCED if seed % 2 else SAFE), "segment.bytes": "4000"})
    run.acknowledge(20)
    programs = {broker: run.machine(broker).program for broker in run.cluster.brokers}
    end = FAULTS["run out of descriptors"][0](run, Random(seed))
    assert end is not None
    run.acknowledge(60)
    run.cluster.run(70)
    end()
    assert not run.lost
    run.settle()
    for broker, program in programs.items():
        assert run.machine(broker).program is program
        assert all(directory.offline is None for directory in program.directories.directories)
    run.converge()


def test_a_slow_disk_is_as_quick_as_before_in_the_end() -> None:
    """Also where it became slower still meanwhile, and the earlier fault ends first."""
    run = ReplicatedRun(1)
    ends = [FAULTS["slow disk"][0](run, Random(seed)) for seed in range(12)]
    for end in ends:
        assert end is not None
        end()
    assert all(machine.host.offload.delay_s == DELAY_S for machine in run.cluster.brokers.values())
    run.converge()


def test_one_machine_at_a_time_loses_what_was_committed() -> None:
    """Whoever else is in sync may be killed before it is noticed: only who lost something would be counted on then."""
    run = ReplicatedRun(3)
    run.acknowledge(20)
    assert run.survives(1)
    assert run.survives(2)
    run.lose_power(1)
    assert not run.survives(2), "1 has lost something, and counts as in sync"
    run.launch(1)
    run.settle()
    assert run.survives(2)
    run.converge()
