"""Faults of brokers' processes and machines."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End, random_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

BOUNCES_MAX = 5
STEPS_BETWEEN_MAX = 500
STEPS_AFTER_MAX = 300


def kill(run: ReplicatedRun, random: Random) -> End | None:
    """Kill a broker (``kill -9``), and start it again at the end."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    run.kill(broker)
    return lambda: run.launch(broker)


def lose_power(run: ReplicatedRun, random: Random) -> End | None:
    """Cut the power of a machine, if all committed data survives."""
    broker = random_broker(run, random)
    if broker is None or not run.can_lose_power(broker):
        return None
    run.lose_power(broker)
    return lambda: run.launch(broker)


def bounce(run: ReplicatedRun, random: Random) -> None:
    """Kill and immediately restart a broker, before other brokers notice."""
    broker = random_broker(run, random)
    if broker is not None:
        run.kill(broker)
        run.launch(broker)


def bounce_repeatedly(run: ReplicatedRun, random: Random) -> None:
    """Kill and restart a broker several times, each time before it has finished starting."""
    broker = random_broker(run, random)
    if broker is None:
        return
    for _ in range(random.randint(2, BOUNCES_MAX)):
        if run.machine(broker).running:
            run.kill(broker)
        run.launch(broker)
        run.steps(random.randrange(STEPS_BETWEEN_MAX))


def kill_all(run: ReplicatedRun, random: Random) -> End:
    """Kill all brokers at once; they start again in random order."""
    for broker, machine in run.cluster.brokers.items():
        if machine.running:
            run.kill(broker)
    order = random.sample(sorted(run.cluster.brokers), len(run.cluster.brokers))

    def end() -> None:
        for broker in order:
            run.launch(broker)

    return end


def stop(run: ReplicatedRun, random: Random) -> End | None:
    """Stop a broker gracefully; kill it if it has not stopped by the end of the fault."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    program = run.machine(broker).program
    run.shut_down(broker).addErrback(run.record_failure)

    def end() -> None:
        machine = run.machine(broker)
        if machine.running and machine.program is program:
            run.kill(broker)
        run.launch(broker)

    return end


def pause(run: ReplicatedRun, random: Random) -> End | None:
    """Pause a broker (``SIGSTOP``) until the end."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    run.note(f"broker {broker} is paused")
    host = run.machine(broker).host
    host.pause()

    def end() -> None:
        run.note(f"broker {broker} resumes")
        host.resume()

    return end


def pause_and_kill(run: ReplicatedRun, random: Random) -> End | None:
    """Pause a broker; at the end, resume it, and kill it a few events later, when its session may have expired."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    run.note(f"broker {broker} is paused")
    host, program = run.machine(broker).host, run.machine(broker).program
    host.pause()

    def end() -> None:
        run.note(f"broker {broker} resumes")
        host.resume()
        run.steps(random.randrange(STEPS_AFTER_MAX))
        machine = run.machine(broker)
        if machine.running and machine.program is program:
            run.kill(broker)
        run.launch(broker)

    return end
