"""Registers a broker in ZooKeeper and creates the persistent znodes and the cluster id."""

from __future__ import annotations

import random
from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import random_uuid, uuid_text
from kreplica.errors import KreplicaError
from kreplica.model import BrokerRegistration
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.zookeeper import BadVersion, NodeExists, NoNode, SessionState, WatchEvent, ZooKeeperClient

log = Logger()


LEFTOVER_WAIT_SESSIONS = 1.5
"""Time to wait for the removal of this broker's old registration, as a multiple of the session timeout."""


class BrokerIdInUse(KreplicaError):
    """Another live broker is registered with this broker id; the message contains its endpoints."""


async def create_persistent_paths(client: ZooKeeperClient) -> None:
    """Create the znodes that Kafka brokers expect, with their parents; existing znodes are unchanged.

    The chroot of the connect string is created too, as Kafka brokers do.
    """
    paths: dict[str, None] = {}
    for path in znodes.PERSISTENT_PATHS:
        parts = path.strip("/").split("/")
        paths.update(dict.fromkeys("/" + "/".join(parts[: i + 1]) for i in range(len(parts))))
    await client.create_chroot()
    # A connection keeps the order of requests, so parents are created before children without waiting for responses.
    await gather([_create(client, path) for path in paths])


async def _create(client: ZooKeeperClient, path: str) -> None:
    try:
        # Null data, as in Kafka, which cannot parse empty data.
        await client.create(path, None)
    except NodeExists:
        pass


async def read_or_create_cluster_id(client: ZooKeeperClient, rng: random.Random) -> str:
    """Return the cluster id (22 characters); the first broker of a cluster creates it."""
    while True:
        try:
            data, _ = await client.get_data(znodes.CLUSTER_ID)
            return documents.decode_cluster_id(data)
        except NoNode:
            pass
        cluster_id = uuid_text(random_uuid(rng))
        for path, data in (("/cluster", b""), (znodes.CLUSTER_ID, documents.encode_cluster_id(cluster_id))):
            try:
                await client.create(path, data)
            except NodeExists:
                pass


async def register(reactor: Reactor, client: ZooKeeperClient, registration: BrokerRegistration) -> BrokerRegistration:
    """Register this broker in ``/brokers/ids``.

    If an earlier session left a znode with this broker's endpoints (KAFKA-7165), this waits for its removal, for at
    most one and a half session timeouts. It does not wait for a znode with other endpoints. An existing znode of the
    current session was created by an earlier attempt whose response was lost.

    :return: the registration with its epoch.
    :raise ConnectionLoss: the connection was lost; a repeated call reads back the result.
    :raise BrokerIdInUse: another broker has this id.
    """
    path = znodes.broker_path(registration.broker_id)
    data = documents.encode_broker(registration)
    wait_s = LEFTOVER_WAIT_SESSIONS * client.session_timeout_ms / 1000
    while True:
        try:
            created = await client.create(path, data, ephemeral=True)
            assert created.stat is not None, "the response to the create request has no stat"
            return replace(registration, epoch=created.stat.czxid)
        except NodeExists:
            pass
        changed = Change()
        try:
            old_data, stat = await client.get_data(path, changed.seen)
        except NoNode:
            continue
        if stat.ephemeral_owner == client.session_id:
            if old_data == data:
                return replace(registration, epoch=stat.czxid)
            await _remove_outdated(client, path, stat.version)  # written by an earlier attempt with outdated data
            continue
        old = documents.decode_broker(registration.broker_id, old_data, stat.czxid)
        in_use = BrokerIdInUse(
            f"broker id {registration.broker_id} is in use: {', '.join(map(str, old.endpoints))} registered it in "
            f"ZooKeeper session 0x{stat.ephemeral_owner:x}; give this broker another broker.id, or stop the other"
        )
        if old.endpoints != registration.endpoints:
            raise in_use
        log.info(
            "broker {id} is still registered in an earlier ZooKeeper session; waiting for the end of that session",
            id=registration.broker_id,
        )
        interruptions: list[SessionState] = []
        forget = client.on_session_event(interruptions.append)
        try:
            # Servers that restart or elect a leader restart the timeout of every session.
            if not await changed.within(reactor, wait_s) and not interruptions:
                raise in_use
        finally:
            forget()


async def _remove_outdated(client: ZooKeeperClient, path: str, version: int) -> None:
    try:
        await client.delete(path, version)
    except (NoNode, BadVersion):
        pass


class Change:
    """Waits for the next change of a znode; ``seen`` is the watch."""

    def __init__(self) -> None:
        self._seen: Deferred[bool] = Deferred()

    def seen(self, _: WatchEvent) -> None:
        self._finish(True)

    def within(self, reactor: Reactor, timeout_s: float) -> Deferred[bool]:
        """Return a Deferred that fires with True when the znode changes, or with False after the timeout."""
        timer = reactor.callLater(timeout_s, self._finish, False)

        def cancel_timer(outcome: bool) -> bool:
            if timer.active():
                timer.cancel()
            return outcome

        return self._seen.addBoth(cancel_timer)

    def _finish(self, outcome: bool) -> None:
        if not self._seen.called:
            self._seen.callback(outcome)
