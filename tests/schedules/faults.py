"""Faults of schedules on real processes, disks, clocks and networks, each with a function that ends it."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from hosts import BROKERS, ZOOKEEPERS, Hosts
from power_cut import cut_tails

from tests.support.broker_process import BrokerProcess
from tests.support.links import CLIENTS, COORDINATOR, cut
from tests.support.process_cluster import ProcessCluster
from tests.support.real_zookeeper import RealZooKeeper

CLOCK_JUMPS_S = (-7200, -30, -1, 5, 600, 86_400)
LOST_PERCENT = (2, 10, 25)
KILOBITS_PER_S = (300, 1000, 4000)


@dataclass(frozen=True, slots=True)
class World:
    """The cluster and the environment that faults affect.

    :param topic: topic whose leaders are often the target of a fault.
    """

    hosts: Hosts
    zookeeper: RealZooKeeper
    cluster: ProcessCluster
    topic: str
    random: Random

    def choose_broker(self) -> BrokerProcess:
        """Return a running broker: the controller, the leader of a partition, or any broker."""
        roles: list[Callable[[], int]] = [
            self.cluster.controller,
            lambda: self.cluster.leader(self.topic, 0),
            lambda: self.random.choice(BROKERS),
        ]
        try:
            chosen = self.cluster.brokers[self.random.choice(roles)()]
        except AssertionError:
            chosen = self.cluster.brokers[self.random.choice(BROKERS)]
        return chosen if chosen.answering else self.random.choice(self.cluster.answering)

    def other_hosts(self, broker_id: int) -> set[int]:
        """Return the hosts of the other brokers and of ZooKeeper."""
        return {*BROKERS, *ZOOKEEPERS} - {broker_id, COORDINATOR}


Heal = Callable[[], object]
Begin = Callable[[World], Heal]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    :param begin: injects the fault and returns the function that ends it.
    :param destructive: True if a replica loses data: all replicas must be in sync before, because otherwise the loss of
        an acknowledged record would be expected.
    :param combines: True if the fault can overlap with another kind for which this is also True.
    """

    name: str
    begin: Begin
    destructive: bool = False
    combines: bool = False


def _kill_brokers(count: int) -> Begin:
    def begin(world: World) -> Heal:
        victims = (
            world.random.sample(list(world.cluster.brokers.values()), count) if count > 1 else [world.choose_broker()]
        )
        for broker in victims:
            broker.kill()
        return world.cluster.start

    return begin


def _stop_broker(world: World) -> Heal:
    world.choose_broker().stop(60)
    return world.cluster.start


def _pause_broker(world: World) -> Heal:
    broker = world.choose_broker()
    broker.pause()
    return broker.resume


def _cut_links(both_ways: bool, sources_of: Callable[[World, int], Iterable[int]]) -> Begin:
    def begin(world: World) -> Heal:
        broker_id = world.choose_broker().broker_id
        other_hosts = set(sources_of(world, broker_id))
        if both_ways:
            cut(world.hosts.links, {broker_id}, other_hosts)
        elif world.random.random() < 0.5:
            world.hosts.links.cut_one_way({broker_id}, other_hosts)
        else:
            world.hosts.links.cut_one_way(other_hosts, {broker_id})
        return world.hosts.links.heal

    return begin


def _cut_ring(world: World) -> Heal:
    """Each broker receives packets from one other broker and sends packets to the third."""
    for broker_id, next_id in zip(BROKERS, (*BROKERS[1:], BROKERS[0]), strict=True):
        world.hosts.links.cut_one_way({broker_id}, {next_id})
    return world.hosts.links.heal


def _power_cut(world: World) -> Heal:
    broker = world.choose_broker()
    broker.kill()
    for directory in broker.log_directories:
        cut_tails(directory, world.random)
    world.hosts.restart_machine(broker.broker_id)
    return world.cluster.start


def _wipe(world: World) -> Heal:
    broker = world.cluster.brokers[world.random.choice(BROKERS)]
    broker.kill()
    for directory in broker.log_directories:
        shutil.rmtree(directory)
    return world.cluster.start


def _fill_disks(brokers: Callable[[World], Iterable[int]]) -> Begin:
    def begin(world: World) -> Heal:
        chosen = list(brokers(world))
        for broker_id in chosen:
            world.hosts.fill_disk(broker_id)

        def heal() -> None:
            for broker_id in chosen:
                world.hosts.free_disk(broker_id)

        return heal

    return begin


def _fail_disk(world: World) -> Heal:
    """Make every write that extends a file fail with EFBIG, as on a faulty disk: the directory goes offline."""
    broker = world.choose_broker()
    hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (0, hard))

    def heal() -> None:
        broker.kill()
        world.cluster.start()

    return heal


def _lose_packets(world: World) -> Heal:
    broker_id = world.choose_broker().broker_id
    world.hosts.lose_packets(broker_id, world.random.choice(LOST_PERCENT))
    return lambda: world.hosts.restore_network(broker_id)


def _slow_down(world: World) -> Heal:
    broker_id = world.choose_broker().broker_id
    world.hosts.slow_down(broker_id, world.random.choice(KILOBITS_PER_S))
    return lambda: world.hosts.restore_network(broker_id)


def _jump_clock(world: World) -> Heal:
    broker_id = world.random.choice(BROKERS)
    world.hosts.set_clock(broker_id, world.random.choice(CLOCK_JUMPS_S))
    return lambda: world.hosts.set_clock(broker_id, 0)


def _kill_zookeeper(world: World) -> Heal:
    server = world.random.choice([world.zookeeper.leader, *world.zookeeper.servers])
    server.kill()

    def heal() -> None:
        server.start()
        world.zookeeper.wait_until_serving()

    return heal


def _kill_ensemble(world: World) -> Heal:
    for server in world.zookeeper.servers:
        server.kill()

    def heal() -> None:
        for server in world.zookeeper.servers:
            server.start()
        world.zookeeper.wait_until_serving()

    return heal


def _pause_zookeeper(world: World) -> Heal:
    server = world.zookeeper.leader
    server.pause()

    def heal() -> None:
        server.resume()
        world.zookeeper.wait_until_serving()

    return heal


KINDS: tuple[FaultKind, ...] = (
    FaultKind("kill a broker", _kill_brokers(1)),
    FaultKind("kill two brokers", _kill_brokers(2)),
    FaultKind("kill all brokers", _kill_brokers(3)),
    FaultKind("stop a broker", _stop_broker),
    FaultKind("pause a broker", _pause_broker),
    FaultKind("disconnect a broker", _cut_links(True, World.other_hosts)),
    FaultKind("disconnect a broker in one direction", _cut_links(False, World.other_hosts)),
    FaultKind("disconnect a broker from ZooKeeper", _cut_links(True, lambda world, broker_id: ZOOKEEPERS)),
    FaultKind("disconnect a broker from brokers", _cut_links(True, lambda world, broker_id: {*BROKERS} - {broker_id})),
    FaultKind("disconnect a broker from clients", _cut_links(True, lambda world, broker_id: {CLIENTS})),
    FaultKind("one-way connections in a ring", _cut_ring),
    FaultKind("power cut", _power_cut, destructive=True),
    FaultKind("wipe a disk", _wipe, destructive=True),
    FaultKind("fill a disk", _fill_disks(lambda world: [world.choose_broker().broker_id]), combines=True),
    FaultKind("fill all disks", _fill_disks(lambda world: BROKERS)),
    FaultKind("fail a disk", _fail_disk),
    FaultKind("lose packets", _lose_packets, combines=True),
    FaultKind("slow a link down", _slow_down, combines=True),
    FaultKind("jump a clock", _jump_clock, combines=True),
    FaultKind("kill a ZooKeeper server", _kill_zookeeper, combines=True),
    FaultKind("kill the ZooKeeper ensemble", _kill_ensemble),
    FaultKind("pause the ZooKeeper leader", _pause_zookeeper, combines=True),
)
