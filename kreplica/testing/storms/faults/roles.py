"""Faults during changes of leaders and controllers."""

from __future__ import annotations

from random import Random

from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.testing.storms.faults.fault import End, broker_name, random_broker
from kreplica.testing.storms.faults.operations import elect
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.zookeeper import ZooKeeperError

WATCH_DELAYS_S = (0.5, 2.0, 4.0)
MOVES_MAX = 4
STEPS_MAX = 400
PAUSE_STEPS_MAX = 60
RESIGNATION_CHANCE = 0.4


def depose_controller(run: ReplicatedRun, random: Random) -> End | None:
    """Remove the controller's znode, or request its resignation.

    The old controller notices late.  If the znode is removed, there are two controllers for a while.
    """
    old, other = run.cluster.controller(), random_broker(run, random)
    if old is None or other is None:
        return None
    links = [run.network.link(host, broker_name(old)) for host in run.cluster.zookeeper_hosts]
    delay_s = random.choice(WATCH_DELAYS_S)
    for link in links:
        link.latency_s = (delay_s, delay_s)
    if random.random() < RESIGNATION_CHANCE:
        run.note(f"controller {old} is asked to resign, and notices this {delay_s} s late")
        Deferred.fromCoroutine(_request_resignation(run, other))
    else:
        run.note(f"controller {old} is deposed, and notices this {delay_s} s late")
        Deferred.fromCoroutine(_remove_controller(run, other))

    def end() -> None:
        for link in links:
            link.latency_s = run.network.latency_s

    return end


async def _remove_controller(run: ReplicatedRun, broker: int) -> None:
    try:
        await run.machine(broker).program.client.delete(znodes.CONTROLLER)
    except ZooKeeperError:
        pass  # no controller is elected, or ZooKeeper is not available


async def _request_resignation(run: ReplicatedRun, broker: int) -> None:
    client = run.machine(broker).program.client
    try:
        data, stat = await client.get_data(znodes.CONTROLLER)
        await client.set_data(znodes.CONTROLLER, documents.with_resignation(data), stat.version)
    except ZooKeeperError:
        pass  # no controller or ZooKeeper server is available, or another controller was elected


def move_leaders(run: ReplicatedRun, random: Random) -> None:
    """Change leaders several times, each time before all brokers know of the previous change."""
    for _ in range(random.randint(2, MOVES_MAX)):
        if random.random() < 0.5:
            elect(run, random)
        else:
            leader = run.leader(random.randrange(len(run.keys)))
            machine = run.cluster.brokers.get(leader)
            zookeeper = run.cluster.zookeeper
            if machine and machine.running and zookeeper.running and zookeeper.program.serving is not None:
                run.note(f"the session of leader {leader} expires")
                run.cluster.expire_session(leader)
        run.steps(random.randrange(STEPS_MAX))


def pause_at_election(run: ReplicatedRun, random: Random) -> End | None:
    """Elect a leader, and pause the old leader or the controller during the election."""
    leader = run.leader(random.randrange(len(run.keys)))
    elect(run, random)
    run.steps(random.randrange(PAUSE_STEPS_MAX))
    choices = [broker for broker in (leader, run.cluster.controller()) if broker in run.cluster.brokers]
    if not choices:
        return None
    broker = random.choice(choices)
    host = run.machine(broker).host
    run.note(f"broker {broker} is paused")
    host.pause()
    return host.resume


def delay_segments(run: ReplicatedRun, random: Random) -> End:
    """Lose random segments from one server to another: they and later segments of the connection are seconds late."""
    servers = [*run.cluster.zookeeper_hosts, *map(broker_name, run.cluster.brokers)]
    source, destination = random.sample(servers, 2)
    link = run.network.link(source, destination)
    link.late_chance = random.choice((0.01, 0.1, 0.5))
    run.note(f"{link.late_chance:.0%} of the segments from {source} to {destination} are late")

    def end() -> None:
        link.late_chance = 0.0

    return end


def kill_one_by_one(run: ReplicatedRun, random: Random) -> End:
    """Kill several brokers one after another; they start again one after another in random order."""
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
