"""A broker's place in the cluster: the znodes every broker makes, the cluster's id, and its own registration."""

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
from kreplica.runtime.together import together
from kreplica.zookeeper import BadVersion, NodeExists, NoNode, SessionState, WatchEvent, ZooKeeperClient

log = Logger()


PATIENCE_SESSIONS = 1.5
"""How many session time-outs a leftover registration of our own is waited for."""


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
    # Parents come before children, and one connection keeps the order: no need to wait for each.
    await together([_make(client, path) for path in paths])


async def _make(client: ZooKeeperClient, path: str) -> None:
    try:
        # Without data, as Kafka makes them: it takes empty data for a document that it cannot read.
        await client.create(path, None)
    except NodeExists:
        pass


async def read_or_make_cluster_id(client: ZooKeeperClient, rng: random.Random) -> str:
    """The cluster's id: 22 characters, made by the first broker that ever started."""
    while True:
        try:
            data, _ = await client.get_data(znodes.CLUSTER_ID)
            return documents.decode_cluster_id(data)
        except NoNode:
            pass
        made = uuid_text(random_uuid(rng))
        for path, data in (("/cluster", b""), (znodes.CLUSTER_ID, documents.encode_cluster_id(made))):
            try:
                await client.create(path, data)
            except NodeExists:
                pass


async def register(reactor: Reactor, client: ZooKeeperClient, registration: BrokerRegistration) -> BrokerRegistration:
    """Announce this broker in ``/brokers/ids``.

    A node that names our own endpoints was left by an earlier session of ours (KAFKA-7165: nobody else can listen
    there), which ends by itself: it is waited for, a little longer than a session lasts.  Another broker's is not.
    A create whose answer was lost is read back: the node of the present session is ours.

    :return: the registration with its epoch.
    :raise ConnectionLoss: the connection was lost; calling again finds out what was written.
    :raise BrokerIdInUse: where another broker has our id.
    """
    path = znodes.broker_path(registration.broker_id)
    data = documents.encode_broker(registration)
    patience_s = PATIENCE_SESSIONS * client.session_timeout_ms / 1000
    while True:
        try:
            made = await client.create(path, data, ephemeral=True)
            assert made.stat is not None, "a create with stat was asked for"
            return replace(registration, epoch=made.stat.czxid)
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
            await _remove_outdated(client, path, stat.version)  # an earlier attempt wrote what no longer holds
            continue
        old = documents.decode_broker(registration.broker_id, old_data, stat.czxid)
        in_use = BrokerIdInUse(
            f"broker id {registration.broker_id} is taken: {', '.join(map(str, old.endpoints))} registered it in "
            f"ZooKeeper session 0x{stat.ephemeral_owner:x}; give this broker another broker.id, or stop that one"
        )
        if old.endpoints != registration.endpoints:
            raise in_use
        log.info("waiting for the session to end in which broker {id} was registered", id=registration.broker_id)
        interruptions: list[SessionState] = []
        forget = client.on_session_event(interruptions.append)
        try:
            # Servers that restart or elect a leader give every session its whole time-out again.
            if not await changed.within(reactor, patience_s) and not interruptions:
                raise in_use
        finally:
            forget()


async def _remove_outdated(client: ZooKeeperClient, path: str, version: int) -> None:
    try:
        await client.delete(path, version)
    except (NoNode, BadVersion):
        pass


class Change:
    """A znode's next change, to be waited for."""

    def __init__(self) -> None:
        self._seen: Deferred[bool] = Deferred()

    def seen(self, _: WatchEvent) -> None:
        self._over(True)

    def within(self, reactor: Reactor, timeout_s: float) -> Deferred[bool]:
        """Whether it comes in time."""
        timer = reactor.callLater(timeout_s, self._over, False)

        def cancel_timer(outcome: bool) -> bool:
            if timer.active():
                timer.cancel()
            return outcome

        return self._seen.addBoth(cancel_timer)

    def _over(self, outcome: bool) -> None:
        if not self._seen.called:
            self._seen.callback(outcome)
