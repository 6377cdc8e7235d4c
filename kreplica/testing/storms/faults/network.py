"""Cut and slow links, broken connections."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kreplica.testing.storms.faults.fault import End, broker_name, random_broker, random_zookeeper_host
from kreplica.testing.storms.replicated_run import ReplicatedRun

LATENCIES_S = (0.01, 0.2, 1.0)
ONE_WAY_CHANCE = 0.3
ONE_SERVER_CHANCE = 0.5
THROUGHPUTS_BYTES_PER_S = (3_000, 20_000, 200_000)
WATCH_DELAYS_S = (0.2, 1.0, 3.0)


def cut_from_zookeeper(run: ReplicatedRun, random: Random) -> End | None:
    broker = random_broker(run, random)
    return None if broker is None else _cut_all(run, random, broker_name(broker), run.cluster.zookeeper_hosts)


def cut_brokers(run: ReplicatedRun, random: Random) -> End:
    a, b = random.sample(sorted(run.cluster.brokers), 2)
    return _cut(run, random, broker_name(a), broker_name(b))


def cut_from_client(run: ReplicatedRun, random: Random) -> End:
    broker = random.choice(sorted(run.cluster.brokers))
    return _cut(run, random, broker_name(broker), random.choice(run.client_hosts))


def isolate(run: ReplicatedRun, random: Random) -> End | None:
    broker = random_broker(run, random)
    if broker is None:
        return None
    run.note(f"broker {broker} is isolated")
    run.network.isolate(broker_name(broker))
    return lambda: run.network.heal(broker_name(broker))


def isolate_zookeeper(run: ReplicatedRun, random: Random) -> End:
    host = random_zookeeper_host(run, random)
    run.note(f"the ZooKeeper host {host} is isolated")
    run.network.isolate(host)
    return lambda: run.network.heal(host)


def half_open_connections(run: ReplicatedRun, random: Random) -> End:
    """Reset the connections between two servers at one end only, and cut the link."""
    a, b = random.sample(_servers(run), 2)
    run.note(f"{a} loses its connections with {b}, which does not notice")
    run.network.cut(a, b)
    run.network.drop_connections(a, b, one_way=True)
    return lambda: run.network.heal(a, b)


def drop_connections(run: ReplicatedRun, random: Random) -> None:
    """Reset all connections between two hosts, at one end or both."""
    a, b = random.sample([*_servers(run), *run.client_hosts], 2)
    run.network.drop_connections(a, b, one_way=random.random() < 0.5)


def delay(run: ReplicatedRun, random: Random) -> End:
    """Increase the latency between two servers."""
    network = run.network
    a, b = random.sample(_servers(run), 2)
    latency_s = random.choice(LATENCIES_S)
    run.note(f"the latency between {a} and {b} is up to {latency_s} s")
    network.slow(a, b, (0.001, latency_s))
    return lambda: network.slow(a, b, network.latency_s)


def limit_throughput(run: ReplicatedRun, random: Random) -> End:
    network = run.network
    a, b = random.sample(_servers(run), 2)
    bytes_per_s = random.choice(THROUGHPUTS_BYTES_PER_S)
    run.note(f"the throughput between {a} and {b} is {bytes_per_s} bytes per second")
    network.slow(a, b, network.latency_s, bytes_per_s)
    return lambda: network.slow(a, b, network.latency_s)


def delay_watches(run: ReplicatedRun, random: Random) -> End | None:
    """Delay messages from ZooKeeper to a broker, but not those from the broker."""
    broker = random_broker(run, random)
    if broker is None:
        return None
    links = [run.network.link(host, broker_name(broker)) for host in run.cluster.zookeeper_hosts]
    delay_s = random.choice(WATCH_DELAYS_S)
    run.note(f"messages from ZooKeeper to broker {broker} are {delay_s} s late")
    for link in links:
        link.latency_s = (delay_s, delay_s)

    def end() -> None:
        for link in links:
            link.latency_s = run.network.latency_s

    return end


def _servers(run: ReplicatedRun) -> list[str]:
    return [*run.cluster.zookeeper_hosts, *map(broker_name, run.cluster.brokers)]


def _cut(run: ReplicatedRun, random: Random, a: str, b: str) -> End:
    return _cut_all(run, random, a, [b])


def _cut_all(run: ReplicatedRun, random: Random, host: str, others: Sequence[str]) -> End:
    """Cut the links between a host and some other hosts, in one or both directions."""
    if len(others) > 1 and random.random() < ONE_SERVER_CHANCE:
        others = [random.choice(others)]
    is_from_host = random.sample((True, False), 2)[0]
    one_way = random.random() < ONE_WAY_CHANCE
    for other in others:
        a, b = (host, other) if is_from_host else (other, host)
        run.note(f"the link from {a} to {b} is cut" + ("" if one_way else ", and back"))
        run.network.cut(a, b, one_way=one_way)

    def end() -> None:
        for other in others:
            run.network.heal(host, other)

    return end
