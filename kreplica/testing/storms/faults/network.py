"""Links that are cut, one way or both, or slow; connections that break."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End, broker_name, some_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun

COORDINATOR = "coordinator"
LATENCIES_S = (0.01, 0.2, 1.0)
ONE_WAY_CHANCE = 0.3
THROUGHPUTS_BYTES_PER_S = (3_000, 20_000, 200_000)
WATCH_DELAYS_S = (0.2, 1.0, 3.0)


def cut_from_coordinator(run: ReplicatedRun, random: Random) -> End | None:
    """A broker and the coordinator."""
    broker = some_broker(run, random)
    return None if broker is None else _cut(run, random, broker_name(broker), COORDINATOR)


def cut_brokers(run: ReplicatedRun, random: Random) -> End:
    """Two brokers."""
    a, b = random.sample(sorted(run.cluster.brokers), 2)
    return _cut(run, random, broker_name(a), broker_name(b))


def cut_from_client(run: ReplicatedRun, random: Random) -> End:
    """A broker and a client."""
    broker = random.choice(sorted(run.cluster.brokers))
    return _cut(run, random, broker_name(broker), random.choice(run.clients))


def isolate(run: ReplicatedRun, random: Random) -> End | None:
    """A broker and everybody else."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    run.tell(f"broker {broker} is isolated")
    run.network.isolate(broker_name(broker))
    return lambda: run.network.heal(broker_name(broker))


def isolate_coordinator(run: ReplicatedRun, random: Random) -> End:
    """The coordinator and everybody: sessions end, or do not, when it is back."""
    run.tell("the coordinator is isolated")
    run.network.isolate(COORDINATOR)
    return lambda: run.network.heal(COORDINATOR)


def forget_connections(run: ReplicatedRun, random: Random) -> End:
    """One of two servers has lost its connections with the other, and cannot tell it: those are half-open."""
    a, b = random.sample(_servers(run), 2)
    run.tell(f"{a} has lost its connections with {b}, which does not know")
    run.network.cut(a, b)
    run.network.drop_connections(a, b, one_way=True)
    return lambda: run.network.heal(a, b)


def drop_connections(run: ReplicatedRun, random: Random) -> None:
    """All connections between two hosts, maybe half of each only."""
    a, b = random.sample([*_servers(run), *run.clients], 2)
    run.network.drop_connections(a, b, one_way=random.random() < 0.5)


def slow_down(run: ReplicatedRun, random: Random) -> End:
    """The link between two servers."""
    network = run.network
    a, b = random.sample(_servers(run), 2)
    latency_s = random.choice(LATENCIES_S)
    run.tell(f"{a} and {b} are up to {latency_s} s apart")
    network.slow(a, b, (0.001, latency_s))
    return lambda: network.slow(a, b, network.latency_s)


def narrow(run: ReplicatedRun, random: Random) -> End:
    """Little passes in a second between two servers, in both directions."""
    network = run.network
    a, b = random.sample(_servers(run), 2)
    bytes_per_s = random.choice(THROUGHPUTS_BYTES_PER_S)
    run.tell(f"{bytes_per_s} bytes pass in a second between {a} and {b}")
    network.slow(a, b, network.latency_s, bytes_per_s)
    return lambda: network.slow(a, b, network.latency_s)


def delay_watches(run: ReplicatedRun, random: Random) -> End | None:
    """A broker learns later than others what changed in ZooKeeper; what it says is heard at once."""
    broker = some_broker(run, random)
    if broker is None:
        return None
    link = run.network.link(COORDINATOR, broker_name(broker))
    delay_s = random.choice(WATCH_DELAYS_S)
    run.tell(f"broker {broker} hears the coordinator {delay_s} s late")
    link.latency_s = (delay_s, delay_s)

    def end() -> None:
        link.latency_s = run.network.latency_s

    return end


def _servers(run: ReplicatedRun) -> list[str]:
    return [COORDINATOR, *map(broker_name, run.cluster.brokers)]


def _cut(run: ReplicatedRun, random: Random, a: str, b: str) -> End:
    a, b = random.sample((a, b), 2)
    one_way = random.random() < ONE_WAY_CHANCE
    run.tell(f"nothing passes from {a} to {b}" + ("" if one_way else ", nor back"))
    run.network.cut(a, b, one_way=one_way)
    return lambda: run.network.heal(a, b)
