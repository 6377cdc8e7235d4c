"""Brokers whose processes or machines fail."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End, some_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

BOUNCES_MAX = 5
STEPS_BETWEEN_MAX = 500
STEPS_AFTER_MAX = 300


def kill(run: ReplicatedRun, random: Random) -> End | None:
    """``kill -9``, and a start at the end."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    run.kill(broker)
    return lambda: run.launch(broker)


def lose_power(run: ReplicatedRun, random: Random) -> End | None:
    """The machine goes out, where nothing can be lost by that which is not also elsewhere or was synced."""
    broker = some_broker(run, random)
    if broker is None or not (run.synced or run.survives(broker)):
        return None
    run.lose_power(broker)
    return lambda: run.launch(broker)


def bounce(run: ReplicatedRun, random: Random) -> None:
    """Killed and started at once, faster than anybody notices."""
    broker = some_broker(run, random)
    if broker is not None:
        run.kill(broker)
        run.launch(broker)


def bounce_again_and_again(run: ReplicatedRun, random: Random) -> None:
    """Killed and started several times, each time before it has done much, faster than anybody notices."""
    broker = some_broker(run, random)
    if broker is None:
        return
    for _ in range(random.randint(2, BOUNCES_MAX)):
        if run.machine(broker).running:
            run.kill(broker)
        run.launch(broker)
        run.steps(random.randrange(STEPS_BETWEEN_MAX))


def kill_all(run: ReplicatedRun, random: Random) -> End:
    """All brokers at once; they come back in any order."""
    for broker, machine in run.cluster.brokers.items():
        if machine.running:
            run.kill(broker)
    order = random.sample(sorted(run.cluster.brokers), len(run.cluster.brokers))

    def end() -> None:
        for broker in order:
            run.launch(broker)

    return end


def stop(run: ReplicatedRun, random: Random) -> End | None:
    """Stopped in order; killed where it has not ended by then."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    program = run.machine(broker).program
    run.begin_to_stop(broker).addErrback(run.failed)

    def end() -> None:
        machine = run.machine(broker)
        if machine.running and machine.program is program:
            run.kill(broker)
        run.launch(broker)

    return end


def pause(run: ReplicatedRun, random: Random) -> End | None:
    """``SIGSTOP``, and ``SIGCONT`` at the end."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    run.tell(f"broker {broker} is paused")
    host = run.machine(broker).host
    host.pause()

    def end() -> None:
        run.tell(f"broker {broker} goes on")
        host.resume()

    return end


def pause_and_kill(run: ReplicatedRun, random: Random) -> End | None:
    """``SIGSTOP``; it is killed when it has gone on for a moment, with what it does in a session that may be over."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    run.tell(f"broker {broker} is paused")
    host, program = run.machine(broker).host, run.machine(broker).program
    host.pause()

    def end() -> None:
        run.tell(f"broker {broker} goes on")
        host.resume()
        run.steps(random.randrange(STEPS_AFTER_MAX))
        machine = run.machine(broker)
        if machine.running and machine.program is program:
            run.kill(broker)
        run.launch(broker)

    return end
