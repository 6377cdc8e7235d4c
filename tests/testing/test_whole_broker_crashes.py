"""A simulated broker under load that is repeatedly killed, or whose machine repeatedly loses power."""

from __future__ import annotations

import pytest
from broker_runs import DEFAULT, EVERY_ACK_SYNCED, CrashRun, bytes_of

pytestmark = pytest.mark.usefixtures("logged_errors")

CRASHES = 20
SOAK_SEEDS = range(1000, 1300)


def kills(seed: int) -> None:
    """Kill the broker repeatedly, with default settings: the page cache survives, so nothing may be lost."""
    run = CrashRun(seed, partitions=2)
    for _ in range(CRASHES):
        run.run_load()
        run.crash(power_loss=False)
    run.finish()
    run.check()
    assert run.producer.resets == 0


def power_losses(seed: int) -> None:
    """Lose power repeatedly, with every acknowledgement sent after a sync, and with acks=all or acks=1."""
    run = CrashRun(seed, partitions=2, acks=-1 if seed % 2 else 1, configs=EVERY_ACK_SYNCED)
    for _ in range(CRASHES):
        run.run_load()
        run.crash(power_loss=True)
    run.finish()
    run.check()
    assert run.producer.resets == 0


def power_losses_unsynced(seed: int) -> None:
    """Lose power repeatedly, with default settings and one replica: the log may be truncated, but not damaged."""
    run = CrashRun(seed, configs=DEFAULT)
    network = run.cluster.simulation.network
    for _ in range(CRASHES):
        run.run_load()
        before, synced = bytes_of(run.log(0)), run.log(0).durability.recovery_point
        network.cut("producer", "broker-1")  # so that the recovered log is checked before it grows
        run.crash(power_loss=True)
        recovered = run.log(0)
        assert before.startswith(bytes_of(recovered))
        assert recovered.log_end_offset >= synced
        run.history.forget_from(0, recovered.log_end_offset)
        network.heal()
    run.finish()
    run.check(everything_sent=False)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_twenty_times(seed: int) -> None:
    """No acknowledged or read record is lost, duplicated or reordered, and the log directory opens each time."""
    kills(seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_power_lost_twenty_times(seed: int) -> None:
    """With flush.messages=1, power losses lose, duplicate and reorder nothing, with acks=all and with acks=1."""
    power_losses(seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_power_lost_twenty_times_with_default_settings(seed: int) -> None:
    """After a power loss, at least the synced prefix of the log remains, and writing continues after it."""
    power_losses_unsynced(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
@pytest.mark.parametrize("run", [kills, power_losses, power_losses_unsynced])
def test_many_seeds(run: object, seed: int) -> None:
    assert callable(run)
    run(seed)
