"""A broker's place in the cluster: the znodes every broker makes, the cluster's id, and its own registration."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.errors import KreplicaError
from kreplica.model import BrokerRegistration
from kreplica.zookeeper import NodeExists, NoNode, ZooKeeperClient

log = Logger()


class BrokerIdInUse(KreplicaError):
    """Another live broker has registered under our id; the text names where it listens."""


async def create_persistent_paths(client: ZooKeeperClient) -> None:
    """Make every znode that Kafka's brokers expect to be there, with its parents; what is there already stays.

    The chroot of the connect string is made too, as Kafka's brokers do.
    """
    paths: dict[str, None] = {}
    for path in znodes.PERSISTENT_PATHS:
        parts = path.strip("/").split("/")
        paths.update(dict.fromkeys("/" + "/".join(parts[: i + 1]) for i in range(len(parts))))
    await client.create_chroot()
    # Parents stand before children, and one connection keeps the order: no need to wait for each.
    answers = [client.create(path) for path in paths]
    for answer in answers:
        try:
            await answer
        except NodeExists:
            pass


async def read_or_make_cluster_id(client: ZooKeeperClient, rng: random.Random) -> str:
    """The cluster's id: 22 characters, made by the first broker that ever started."""
    while True:
        try:
            data, _ = await client.get_data(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(data)
        except NoNode:
            pass
        made = znodes.uuid_text(UUID(int=rng.getrandbits(128), version=4))
        for path, data in (("/cluster", b""), (znodes.CLUSTER_ID, znodes.encode_cluster_id(made))):
            try:
                await client.create(path, data)
            except NodeExists:
                pass


async def register(client: ZooKeeperClient, registration: BrokerRegistration) -> BrokerRegistration:
    """Announce this broker in ``/brokers/ids``.

    A node that our own earlier session left behind (KAFKA-7165: this process lost its session, or a killed broker came
    back before its session ended) is ours to replace when it names our own endpoints; another's is not.

    :return: the registration with its epoch.
    :raise BrokerIdInUse: where another broker has our id.
    """
    path = znodes.broker_path(registration.broker_id)
    data = znodes.encode_broker(registration)
    while True:
        try:
            made = await client.create(path, data, ephemeral=True)
            assert made.stat is not None, "a create with stat was asked for"
            return replace(registration, epoch=made.stat.czxid)
        except NodeExists:
            pass
        try:
            old_data, stat = await client.get_data(path)
        except NoNode:
            continue
        if stat.ephemeral_owner == client.session_id:
            return replace(registration, epoch=stat.czxid)
        old = znodes.decode_broker(registration.broker_id, old_data, stat.czxid)
        if old.endpoints != registration.endpoints:
            raise BrokerIdInUse(
                f"broker id {registration.broker_id} is taken: {', '.join(map(str, old.endpoints))} registered it in "
                f"ZooKeeper session 0x{stat.ephemeral_owner:x}; give this broker another broker.id, or stop that one"
            )
        log.info("replacing the registration that an earlier session of broker {id} left", id=registration.broker_id)
        try:
            await client.delete(path, stat.version)
        except NoNode:
            pass
