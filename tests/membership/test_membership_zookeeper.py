"""Registration and producer IDs with the embedded ZooKeeper in simulated time."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.membership.producer_ids import ProducerIds
from kreplica.membership.registration import (
    BrokerIdInUse,
    create_persistent_paths,
    read_or_create_cluster_id,
    register,
)
from kreplica.membership.session import Membership
from kreplica.membership.stale_session import end_previous_session, forget_session, remember_session
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import ConnectionLoss, GetData, NodeExists, ZooKeeperClient
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import Opcode

PORT = 2181
CONNECT = f"coordinator:{PORT}/kafka"


class World:
    """A ZooKeeper server and hosts with clients."""

    def __init__(self, seed=1):
        self.simulation = Simulation(seed)
        host = self.simulation.host("coordinator")
        self.coordinator = EmbeddedZooKeeper(host.runtime, port=PORT, interface="", tick_time_ms=500)
        self.run(self.coordinator.start())

    def run(self, goal, timeout_s=60.0):
        return self.simulation.run_until(goal, timeout_s)

    def register(self, client, broker):
        return self.run(register(self.simulation.host("watcher").runtime.reactor, client, broker))

    def client(self, name, **options):
        """Return a started client on the host with this name."""
        runtime = self.simulation.host(name).runtime
        client = ZooKeeperClient(runtime.reactor, CONNECT, random=runtime.random, session_timeout_ms=5000, **options)
        self.run(client.start())
        return runtime, client


def resuming_client_factory(runtime):
    """Return a factory of clients that resume a session."""
    return lambda session: ZooKeeperClient(
        runtime.reactor, CONNECT, random=runtime.random, connection_timeout_ms=1000, resume=session
    )


@pytest.fixture
def world():
    return World()


def registration(broker_id=1, port=9092):
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "here", port),), timestamp_ms=7)


def test_persistent_paths_are_created_once(world):
    """Two brokers that start together create the paths below a new chroot."""
    _, one = world.client("one")
    _, two = world.client("two")
    world.run(create_persistent_paths(one))
    world.run(create_persistent_paths(two))
    for path in znodes.PERSISTENT_PATHS:
        assert world.run(two.exists(path)) is not None


def test_cluster_id_is_unique(world):
    """The first broker creates a cluster ID of 22 characters, and all others read it."""
    runtime, one = world.client("one")
    other_runtime, two = world.client("two")
    world.run(create_persistent_paths(one))
    first = world.run(read_or_create_cluster_id(one, runtime.random))
    assert world.run(read_or_create_cluster_id(two, other_runtime.random)) == first
    assert len(first) == 22


def test_registration_has_its_epoch(world):
    """The epoch is the czxid of the znode; registering again in the same session changes nothing."""
    _, client = world.client("one")
    world.run(create_persistent_paths(client))
    made = world.register(client, registration())
    data, stat = world.run(client.get_data("/brokers/ids/1"))
    assert made.epoch == stat.czxid > 0
    assert documents.decode_broker(1, data, stat.czxid) == made
    assert world.register(client, registration()).epoch == made.epoch


def test_persistent_paths_have_no_data(world):
    """The data is null: Kafka 2.6 cannot parse an empty /latest_producer_id_block."""
    _, client = world.client("one")
    world.run(create_persistent_paths(client))

    def raw(path):
        absolute = GetData(f"/kafka{path}", False)
        return client._session.submit(
            Opcode.GET_DATA, absolute.encode(), lambda data, start, end: Reader(data, start, end).buffer(), path
        )

    assert {path: world.run(raw(path)) for path in znodes.PERSISTENT_PATHS} == dict.fromkeys(znodes.PERSISTENT_PATHS)


def test_registration_with_a_lost_response(world):
    """The registration is read back: an equal one is kept, a different one is replaced."""
    runtime, client = world.client("one")
    world.run(create_persistent_paths(client))
    network = world.simulation.network
    network.cut("coordinator", "one", one_way=True)
    lost = Deferred.fromCoroutine(register(runtime.reactor, client, registration()))
    outcomes = []
    lost.addBoth(outcomes.append)
    world.run(lambda: bool(outcomes))
    outcomes[0].trap(ConnectionLoss)
    network.heal()
    _, other = world.client("two")
    data, epoch = world.run(read_registration(other))
    assert world.register(client, registration()).epoch == epoch
    changed = replace(registration(), rack="north")
    again = world.register(client, changed)
    assert again.epoch > epoch
    data, epoch = world.run(read_registration(other))
    assert documents.decode_broker(1, data, epoch) == again


def test_leftover_registration_is_awaited_while_zookeeper_restarts(world):
    """A restarted server restarts session timeouts, which extends the wait."""
    _, killed = world.client("one")
    world.run(create_persistent_paths(killed))
    earlier = world.register(killed, registration())
    world.simulation.network.cut("one", "coordinator")
    runtime, again = world.client("two")
    waiting = Deferred.fromCoroutine(register(runtime.reactor, again, registration()))
    for _ in range(3):
        world.simulation.run(3)
        world.simulation.network.heal("one", "coordinator")  # the old session stays alive
        world.simulation.network.drop_connections("two", "coordinator")
        world.simulation.run(3)
    world.simulation.host("one").kill()
    assert world.run(waiting).epoch > earlier.epoch


def test_id_of_another_broker_is_refused(world):
    """The error contains the other broker's endpoints."""
    _, one = world.client("one")
    _, two = world.client("two")
    world.run(create_persistent_paths(one))
    world.register(one, registration(port=1111))
    with pytest.raises(BrokerIdInUse, match="PLAINTEXT://here:1111"):
        world.register(two, registration(port=2222))


def test_own_leftover_registration_is_awaited(world):
    """A znode with this broker's endpoints disappears with its old session."""
    _, killed = world.client("one")
    world.run(create_persistent_paths(killed))
    earlier = world.register(killed, registration())
    world.simulation.host("one").kill()
    _, again = world.client("two")
    assert world.register(again, registration()).epoch > earlier.epoch


def test_live_broker_of_the_same_id_is_not_awaited_forever(world):
    """If two machines use the same broker ID and address, the second one gives up."""
    _, living = world.client("one")
    world.run(create_persistent_paths(living))
    earlier = world.register(living, registration())
    _, again = world.client("two")
    with pytest.raises(BrokerIdInUse, match="broker id 1 is in use"):
        world.register(again, registration())
    assert world.run(again.exists("/brokers/ids/1")).czxid == earlier.epoch


def test_session_of_a_killed_broker_is_ended(world):
    """Ephemeral znodes of a killed broker are removed before its successor opens a session."""
    runtime, killed = world.client("one")
    world.run(create_persistent_paths(killed))
    runtime.disk.make_directories("/data")
    world.register(killed, registration())
    remember_session(runtime.disk, "/data", killed, CONNECT)
    host = world.simulation.host("one")
    host.kill()
    started_s = host.runtime.reactor.seconds()
    world.run(end_previous_session(host.runtime.disk, "/data", CONNECT, resuming_client_factory(host.runtime)))
    _, watcher = world.client("two")
    assert world.run(watcher.exists("/brokers/ids/1")) is None
    assert host.runtime.reactor.seconds() - started_s < 1


@pytest.mark.parametrize("data", [None, b"", b"{}", b'{"connect":"other:1","session_id":1,"password":"00"}'])
def test_unusable_session_file(world, data):
    """A missing or damaged file, or a file of another cluster, does not prevent the start."""
    runtime, client = world.client("one")
    runtime.disk.make_directories("/data")
    if data is not None:
        runtime.disk.write_file("/data/zookeeper-session", data)
    world.run(end_previous_session(runtime.disk, "/data", CONNECT, resuming_client_factory(runtime)))
    forget_session(runtime.disk, "/data")
    forget_session(runtime.disk, "/data")
    assert not runtime.disk.exists("/data/zookeeper-session")
    world.run(client.close())


def make_membership(runtime, client, registrations, replaced=None):
    """Return a membership whose later registrations are intact since the first one."""
    return Membership(
        runtime.reactor,
        runtime.random,
        client,
        registrations.append,
        lambda: registrations[0].epoch if registrations else -1,
        (replaced if replaced is not None else []).append,
    )


async def read_registration(client):
    """Return the data and epoch of broker 1's znode."""
    data, stat = await client.get_data("/brokers/ids/1")
    return data, stat.czxid


def test_taken_broker_id_is_reported(world):
    """If another broker takes its ID, a broker reports this once and does not interfere."""
    runtime, client = world.client("one")
    world.run(create_persistent_paths(client))
    registrations, replaced = [], []
    membership = make_membership(runtime, client, registrations, replaced)
    world.run(membership.join(registration(port=1111)))
    assert membership.registered
    world.simulation.network.cut("one", "coordinator")
    world.simulation.run(20)
    _, other = world.client("two")
    taken = world.register(other, registration(port=2222))
    world.simulation.network.heal("one", "coordinator")
    world.simulation.run(60)
    assert len(registrations) == 1
    (message,) = replaced
    assert "broker id 1 is in use: PLAINTEXT://here:2222" in message
    assert not membership.registered
    assert world.run(read_registration(other))[1] == taken.epoch
    world.run(membership.leave())


def test_lost_session_is_replaced(world):
    """After losing its session, a broker registers again, with a higher epoch."""
    runtime, client = world.client("one")
    world.run(create_persistent_paths(client))
    registrations = []
    membership = make_membership(runtime, client, registrations)
    world.run(membership.join(registration()))
    world.simulation.network.cut("one", "coordinator")
    world.simulation.run(20)
    _, other = world.client("two")
    assert world.run(other.exists("/brokers/ids/1")) is None
    world.simulation.network.heal("one", "coordinator")
    world.simulation.run(20)
    assert [made.broker_id for made in registrations] == [1, 1]
    assert registrations[1].epoch > registrations[0].epoch
    assert [made.intact_since for made in registrations] == [-1, registrations[0].epoch]
    assert documents.decode_broker(1, *world.run(read_registration(other))) == registrations[1]
    assert world.run(other.exists("/brokers/ids/1")).czxid == registrations[1].epoch
    world.run(membership.leave())


def test_producer_ids_are_unique(world):
    """Producer IDs are unique across brokers, blocks and restarts."""
    _, one = world.client("one")
    _, two = world.client("two")
    world.run(create_persistent_paths(one))
    ids = [ProducerIds(one, 1), ProducerIds(two, 2)]
    producer_ids = [world.run(ids[i % 2].next()) for i in range(2500)]
    producer_ids += [world.run(ProducerIds(one, 1).next())]
    assert len(set(producer_ids)) == len(producer_ids)
    assert min(producer_ids) == 0


def test_producer_id_block_with_a_lost_response(world):
    """A block is used even if the response to its write was lost."""
    _, client = world.client("one")
    world.run(create_persistent_paths(client))
    ids = ProducerIds(client, 1)
    network = world.simulation.network
    write = client.set_data

    def lose_response(*arguments):
        network.cut("coordinator", "one", one_way=True)
        return write(*arguments)

    client.set_data = lose_response
    pending = Deferred.fromCoroutine(ids.next())
    world.simulation.run(5)
    network.heal()
    assert world.run(pending) == 0
    assert world.run(ids.next()) == 1


def test_concurrent_requests_share_a_producer_id_block(world):
    from twisted.internet.defer import gatherResults

    _, client = world.client("one")
    world.run(create_persistent_paths(client))
    ids = ProducerIds(client, 1)
    producer_ids = world.run(gatherResults([Deferred.fromCoroutine(ids.next()) for _ in range(1200)]))
    assert sorted(producer_ids) == list(range(1200))
    with pytest.raises(NodeExists):
        world.run(client.create(znodes.LATEST_PRODUCER_ID_BLOCK))
