"""Reads from ZooKeeper which broker is the controller, and in which epoch."""

from __future__ import annotations

from kreplica.cluster import documents, znodes
from kreplica.model import ElectedController
from kreplica.runtime.gather import gather
from kreplica.zookeeper import NoNode, ZooKeeperClient


async def read_elected_controller(client: ZooKeeperClient) -> ElectedController:
    """Return the elected controller, as of the time of the call or later.

    Starts with a sync, because this broker's ZooKeeper server may lag behind: a command can arrive before that
    server has seen the election of the sender.

    :raise ZooKeeperError: ZooKeeper cannot be reached.
    :raise ZnodeError: ``/controller`` or ``/controller_epoch`` cannot be decoded.
    """

    async def read(path: str) -> bytes | None:
        try:
            return (await client.get_data(path))[0]
        except NoNode:
            return None

    # A connection keeps the order of requests, so all three are sent at once.  Both znodes change in one multi, and the
    # epoch is read first: if they change between the reads, the new controller is returned with too low an epoch, and
    # its commands are rejected.
    _, epoch, controller = await gather([_sync(client), read(znodes.CONTROLLER_EPOCH), read(znodes.CONTROLLER)])
    return ElectedController(
        None if controller is None else documents.decode_controller(controller),
        0 if epoch is None else documents.decode_controller_epoch(epoch),
    )


async def _sync(client: ZooKeeperClient) -> bytes | None:
    await client.sync(znodes.CONTROLLER_EPOCH)
    return None
