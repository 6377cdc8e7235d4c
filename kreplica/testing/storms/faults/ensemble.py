"""Faults of the servers of a ZooKeeper ensemble; only in storms with an ensemble."""

from __future__ import annotations

from random import Random

from kreplica.testing.ensemble.machines import EnsembleMachines
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.faults.fault import End, random_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

LAGS_S = (0.1, 0.5, 2.0)
ALL_CHANCE = 0.3


def machines_of(run: ReplicatedRun) -> EnsembleMachines:
    assert run.cluster.ensemble is not None, "the storm has no ensemble"
    return run.cluster.ensemble


def _leader(run: ReplicatedRun) -> int | None:
    term = machines_of(run).ensemble.term
    return None if term is None else term.number


def _random_server(run: ReplicatedRun, random: Random) -> int | None:
    running = [number for number in machines_of(run).hosts if machines_of(run).is_running(number)]
    return random.choice(running) if running else None


def _kill(run: ReplicatedRun, random: Random, number: int | None) -> End | None:
    if number is None or not machines_of(run).is_running(number):
        return None
    run.note(f"ZooKeeper server {number} is killed")
    terminate = (lambda host: host.power_loss(random)) if random.random() < 0.5 else Host.kill
    machines_of(run).kill_server(number, terminate)
    return lambda: run.launch_server(number)


def kill_leader(run: ReplicatedRun, random: Random) -> End | None:
    """Kill the leader; another is elected, and the old one starts again at the end."""
    return _kill(run, random, _leader(run))


def kill_server(run: ReplicatedRun, random: Random) -> End | None:
    """Kill a server; its clients move to other servers, and it catches up with the log at the end."""
    return _kill(run, random, _random_server(run, random))


def _isolate(run: ReplicatedRun, number: int | None) -> End | None:
    if number is None:
        return None
    run.note(f"ZooKeeper server {number} reaches clients, but no other server")
    machines_of(run).ensemble.isolate(number)
    return lambda: machines_of(run).ensemble.heal(number)


def isolate_leader(run: ReplicatedRun, random: Random) -> End | None:
    """Isolate the leader from the other servers: until it notices, it serves reads but commits nothing."""
    return _isolate(run, _leader(run))


def isolate_server(run: ReplicatedRun, random: Random) -> End | None:
    """Isolate a server from the other servers: until it notices, it serves stale reads."""
    return _isolate(run, _random_server(run, random))


def pause_leader(run: ReplicatedRun, random: Random) -> End | None:
    """Pause the leader: when it resumes, it may not know yet that the other servers have elected another leader."""
    number = _leader(run)
    if number is None:
        return None
    run.note(f"ZooKeeper server {number} is paused")
    host, heal = machines_of(run).hosts[number], _isolate(run, number)
    host.pause()

    def end() -> None:
        run.note(f"ZooKeeper server {number} resumes")
        host.resume()
        if heal is not None:
            heal()

    return end


def lag(run: ReplicatedRun, random: Random) -> End:
    """Make one or all servers apply transactions late."""
    members = machines_of(run).ensemble.members
    numbers = list(members) if random.random() < ALL_CHANCE else [random.choice(list(members))]
    lag_s = random.choice(LAGS_S)
    run.note(f"ZooKeeper servers {numbers} lag by {lag_s} s on average")
    for number in numbers:
        members[number].lag_s = lag_s

    def end() -> None:
        for number in numbers:
            members[number].lag_s = machines_of(run).ensemble.options.lag_s

    return end


def move_session(run: ReplicatedRun, random: Random) -> None:
    """Close a broker's connection to its server, so that its session moves to another server."""
    broker = random_broker(run, random)
    if broker is None:
        return
    client = run.machine(broker).program.client
    number = machines_of(run).server_of_session(client.session_id)
    if number is not None:
        run.note(f"the session of broker {broker} leaves ZooKeeper server {number}")
        machines_of(run).server(number).disconnect_session(client.session_id)
