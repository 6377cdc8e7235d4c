"""Confirms with ZooKeeper that who fetches as a follower is a registered broker, in its registered epoch."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.model import NO_BROKER_EPOCH
from kreplica.runtime.together import together
from kreplica.zookeeper import ZooKeeperClient, ZooKeeperError

log = Logger()

Asked = tuple[int, int]
"""A broker ID and the broker epoch that a fetch names."""


class FollowerIncarnations:
    """Owned by a broker; without it any client that names a replica's ID could move high watermarks.

    Registrations are read when a follower fetches from this broker for the first time, and when its epoch changes.

    :ivar epochs: by broker, the epoch that its fetches are to name: the czxid of its registration, or
        ``NO_BROKER_EPOCH`` for a broker whose version of Fetch has no field for it (before KIP-903).
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self.epochs: dict[int, int] = {}
        self._client = client
        self._waiting: dict[Asked, list[Deferred[bool]]] = {}
        self._reading: Deferred[None] | None = None
        self._shown: dict[int, int] = {}

    def confirm(self, broker_id: int, broker_epoch: int) -> Deferred[bool]:
        """Fires with True if fetches of this broker may name this epoch, as ZooKeeper says at the call or later.

        Fires with False also if ZooKeeper cannot be reached.  Only one batch of reads is under way at a time, so that
        forged fetches cost no more than that.
        """
        confirmed: Deferred[bool] = Deferred()
        self._waiting.setdefault((broker_id, broker_epoch), []).append(confirmed)
        if self._reading is None:
            self._reading = Deferred.fromCoroutine(self._read())
            self._reading.addErrback(lambda failure: log.failure("confirming followers failed", failure))
        return confirmed

    async def _read(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                registered = await self._registered({broker_id for broker_id, _ in waiting})
                for (broker_id, broker_epoch), callers in waiting.items():
                    confirmed = self._is_confirmed(broker_id, broker_epoch, registered.get(broker_id))
                    if not confirmed:
                        log.warn(
                            "a fetch as broker {broker} in epoch {epoch} refused: the registered epoch is {registered}",
                            broker=broker_id,
                            epoch=broker_epoch,
                            registered=registered.get(broker_id),
                        )
                    for caller in callers:
                        if not caller.called:  # cancelled, when its client went away
                            caller.callback(confirmed)
        finally:
            self._reading = None

    async def _registered(self, broker_ids: set[int]) -> dict[int, int]:
        """The czxids of the registrations of these brokers; nothing for those that have none."""
        found: dict[int, int] = {}

        async def sync() -> None:
            # The server may lag behind: a follower is not to be refused because its registration is new.
            await self._client.sync(znodes.BROKER_IDS)

        async def read(broker_id: int) -> None:
            stat = await self._client.exists(znodes.broker_path(broker_id))
            if stat is not None:
                found[broker_id] = stat.czxid

        try:
            await together([sync(), *(read(each) for each in sorted(broker_ids))])
        except ZooKeeperError as error:
            log.warn("followers cannot be confirmed: {error}", error=str(error))
            return {}
        return found

    def _is_confirmed(self, broker_id: int, broker_epoch: int, registered: int | None) -> bool:
        if registered is None:
            return False
        if broker_epoch == NO_BROKER_EPOCH:
            if self._shown.get(broker_id) == registered:
                return False  # this very process has named its epoch before
        elif broker_epoch != registered:
            return False
        else:
            self._shown[broker_id] = registered
        self.epochs[broker_id] = broker_epoch
        return True
