"""Trouble just when roles change: who leads and who is the controller, and who has heard of it."""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.testing.storms.faults.fault import End, broker_name, some_broker
from kreplica.testing.storms.faults.operations import elect
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.zookeeper import ZooKeeperError

COORDINATOR = "coordinator"
DEAF_S = (0.5, 2.0, 4.0)
FLIPS_MAX = 4
STEPS_MAX = 400
PAUSE_STEPS_MAX = 60


def depose(run: ReplicatedRun, random: Random) -> End | None:
    """The controller's znode is removed, and it hears late of that: for a while there are two."""
    old, witness = run.cluster.controller(), some_broker(run, random)
    if old is None or witness is None:
        return None
    link = run.network.link(COORDINATOR, broker_name(old))
    deaf_s = random.choice(DEAF_S)
    link.latency_s = (deaf_s, deaf_s)
    run.tell(f"controller {old} is deposed, and hears of it {deaf_s} s late")
    Deferred.fromCoroutine(_remove_controller(run, witness))

    def end() -> None:
        link.latency_s = run.network.latency_s

    return end


async def _remove_controller(run: ReplicatedRun, witness: int) -> None:
    try:
        await run.machine(witness).program.client.delete(znodes.CONTROLLER)
    except ZooKeeperError:
        pass  # nobody holds the office, or nobody can be asked


def flip(run: ReplicatedRun, random: Random) -> None:
    """Leaderships move several times, each time before everybody has heard of the last."""
    for _ in range(random.randint(2, FLIPS_MAX)):
        if random.random() < 0.5:
            elect(run, random)
        else:
            leader = run.leader(random.randrange(len(run.keys)))
            machine = run.cluster.brokers.get(leader)
            coordinator = run.cluster.coordinator
            if machine and machine.running and coordinator.running and coordinator.program.serving is not None:
                run.tell(f"the session of leader {leader} ends")
                run.cluster.expire_session(leader)
        run.steps(random.randrange(STEPS_MAX))


def pause_at_change(run: ReplicatedRun, random: Random) -> End | None:
    """A leadership moves, and one of those who have to do with it stands still in the midst of that."""
    leader = run.leader(random.randrange(len(run.keys)))
    elect(run, random)
    run.steps(random.randrange(PAUSE_STEPS_MAX))
    choices = [broker for broker in (leader, run.cluster.controller()) if broker in run.cluster.brokers]
    if not choices:
        return None
    broker = random.choice(choices)
    host = run.machine(broker).host
    run.tell(f"broker {broker} stands still")
    host.pause()
    return host.resume


def speak_late(run: ReplicatedRun, random: Random) -> End:
    """Now and then what one server sends another is lost, and all behind it on that connection waits for seconds."""
    servers = [COORDINATOR, *map(broker_name, run.cluster.brokers)]
    source, destination = random.sample(servers, 2)
    link = run.network.link(source, destination)
    link.late_chance = random.choice((0.01, 0.1, 0.5))
    run.tell(f"{source} speaks to {destination} late, {link.late_chance:.0%} of the time")

    def end() -> None:
        link.late_chance = 0.0

    return end


def kill_in_order(run: ReplicatedRun, random: Random) -> End:
    """Several brokers die one after the other; they come back in another order, also one after the other."""
    brokers = random.sample(sorted(run.cluster.brokers), random.randint(2, len(run.cluster.brokers)))
    for broker in brokers:
        if run.machine(broker).running:
            run.kill(broker)
        run.steps(random.randrange(STEPS_MAX))
    random.shuffle(brokers)

    def end() -> None:
        for broker in brokers:
            run.launch(broker)
            run.steps(random.randrange(STEPS_MAX))

    return end
