"""Clusters in unusual states, and their admin APIs, in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from direct_calls import DirectCluster
from twisted.internet.defer import Deferred

from kreplica.interfaces import Family
from kreplica.runtime.stalls import StallWatch
from kreplica.service.metrics.broker_metrics import BrokerMetrics
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.transaction_history import TransactionHistory
from tests.support.broker_scene import batch
from tests.support.clients.group_history import GroupHistory
from tests.support.clients.group_member import GroupMember, Subscription


class PresentedCertificate:
    """The TLS context of a listener, with one certificate."""

    def __init__(self, certificate):
        self.certificates = [certificate]

    def reload_if_due(self):
        pass


CONTROLLER = 1
"""The controller; requests are sent to another broker unless a test says otherwise."""


class Scene:
    """Three brokers; ``orders-0`` has replicas on 2 and 3, with 2 as leader."""

    def __init__(self, seed=1, assignment=((2, 3),), configs=None):
        self.cluster = SimulatedCluster(seed, brokers=3, overrides=("zookeeper.session.timeout.ms=6000",))
        self.cluster.start()
        self.apis = DirectCluster(self.cluster)
        self.run(self.cluster.client().create_topic("orders", configs=configs, assignment=assignment))
        self.cluster.wait_in_sync("orders", range(len(assignment)))
        self.cluster.run(2)

    def run(self, goal, timeout_s=60.0):
        return self.cluster.run_until(goal, timeout_s)

    def kill(self, broker):
        self.cluster.brokers[broker].kill()
        self.cluster.run(20)

    def why(self, what="partitions/orders/0", *, via=2):
        return self.apis[via].document("GET", f"/v1/why/{what}")

    def add_certificate(self, broker, listener, days):
        """Add a certificate that expires in some days to a broker's listener; return the expiry in ms since 1970.

        :param days: negative if it has expired.
        """
        program = self.cluster.brokers[broker].program
        expires_at = datetime.fromtimestamp(program.runtime.wall_clock_ms() / 1000, UTC) + timedelta(days=days)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), 1, expires_at - timedelta(days=90), expires_at)
        program.certificates.watch.add(listener, PresentedCertificate(builder.sign(key, hashes.SHA256())))
        return expires_at.timestamp() * 1000

    def metric(self, broker, name):
        """Return the samples of a broker's metric by label values."""
        program = self.cluster.brokers[broker].program

        async def collect():
            families = BrokerMetrics(program, StallWatch(program.runtime.reactor)).families()
            return {each.name: each.samples async for each in families if isinstance(each, Family)}

        return {tuple(each.labels): each.value for each in self.run(Deferred.fromCoroutine(collect()))[name]}

    def produce(self, count=20, size=1000):
        leader = self.cluster.leader_client("orders", 0, name="producer")
        self.run(leader.produce("orders", 0, batch(*[b"x" * size] * count)))

    def move(self, **more):
        """Create a plan through broker 3 that moves a replica from 3 to 1.

        :return: the plan's ID.
        """
        rows = [{"topic": "orders", "partition": 0, "replicas": [2, 1]}]
        body = {"kind": "reassign", "assignments": rows, **more}
        return self.apis[3].document("POST", "/v1/plans", body)["plan"]["id"]

    def coordinator_client(self, name, key, kind):
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        return CoordinatorClient(self.cluster.host(name).reactor, brokers, key, kind, client_id=name)

    def transactional_producer(self, name="tx"):
        """Start a transactional producer, and return it."""
        producer = TransactionalProducer(
            self.cluster.host(name).runtime,
            TransactionSettings(name, timeout_ms=60_000, bumps_epoch=False),
            self.coordinator_client(name, name, TRANSACTION),
            lambda key: self.cluster.leader_client(key.topic, key.partition, name=name),
            TransactionHistory(1),
        )
        self.run(producer.start(), 120.0)
        return producer


class Members(Scene):
    """A scene with members of the group ``readers``, which is subscribed to ``orders``."""

    def join(self, name, **more):
        client = self.coordinator_client(name, "readers", GROUP)
        subscription = Subscription("readers", {"orders": 1}, **more)
        member = GroupMember(client, subscription, GroupHistory(lambda: self.cluster.simulation.now_s))
        return member, Deferred.fromCoroutine(member.join())

    def coordinator(self):
        return self.why("groups/readers")["facts"]["coordinator"]
