"""Verifies with ZooKeeper that a fetching follower is a registered broker with its current epoch."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.model import NO_BROKER_EPOCH
from kreplica.runtime.gather import gather
from kreplica.zookeeper import ZooKeeperClient, ZooKeeperError

log = Logger()

FollowerKey = tuple[int, int]
"""A broker id, and the broker epoch in its fetch."""


class FollowerIncarnations:
    """Confirmed epochs of followers; owned by the broker.

    Without this check, any client could move high watermarks by fetching with a replica's id.

    Registrations are read at the first fetch of a follower and whenever its epoch changes.

    :ivar epochs: by broker id, the epoch expected in its fetches: the czxid of its registration, or ``NO_BROKER_EPOCH``
        for a broker whose Fetch version does not contain it (before KIP-903).
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self.epochs: dict[int, int] = {}
        self._client = client
        self._waiting: dict[FollowerKey, list[Deferred[bool]]] = {}
        self._reading: Deferred[None] | None = None
        self._sent_epochs: dict[int, int] = {}

    def confirm(self, broker_id: int, broker_epoch: int) -> Deferred[bool]:
        """Fire with True if ZooKeeper confirms the epoch of this broker, as of the time of the call or later.

        Also fires with False if ZooKeeper cannot be reached. Only one batch of reads is in progress at a time, which
        limits the cost of forged fetches.
        """
        confirmed: Deferred[bool] = Deferred()
        self._waiting.setdefault((broker_id, broker_epoch), []).append(confirmed)
        if self._reading is None:
            self._reading = reading = Deferred.fromCoroutine(self._read())
            reading.addErrback(lambda failure: log.failure("confirming followers failed", failure))
            reading.addBoth(self._read_ended)  # at once if the session has expired
        return confirmed

    def _read_ended(self, _: None) -> None:
        self._reading = None

    async def _read(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            registered = await self._registered_epochs({broker_id for broker_id, _ in waiting})
            for (broker_id, broker_epoch), callers in waiting.items():
                confirmed = self._is_confirmed(broker_id, broker_epoch, registered.get(broker_id))
                if not confirmed:
                    log.warn(
                        "rejected a fetch with the id of broker {broker} and epoch {epoch}; "
                        "the registered epoch is {registered}",
                        broker=broker_id,
                        epoch=broker_epoch,
                        registered=registered.get(broker_id),
                    )
                for caller in callers:
                    if not caller.called:  # cancelled when the connection was lost
                        caller.callback(confirmed)

    async def _registered_epochs(self, broker_ids: set[int]) -> dict[int, int]:
        """Return the czxids of these brokers' registrations; unregistered brokers are left out."""
        found: dict[int, int] = {}

        async def read(broker_id: int) -> None:
            stat = await self._client.exists(znodes.broker_path(broker_id))
            if stat is not None:
                found[broker_id] = stat.czxid

        try:
            await gather([self._sync(), *(read(each) for each in sorted(broker_ids))])
        except ZooKeeperError as error:
            log.warn("cannot verify followers: {error}", error=str(error))
            return {}
        return found

    async def _sync(self) -> None:
        # A lagging server may not have applied a new registration yet.
        await self._client.sync(znodes.BROKER_IDS)

    def _is_confirmed(self, broker_id: int, broker_epoch: int, registered: int | None) -> bool:
        if registered is None:
            return False
        if broker_epoch == NO_BROKER_EPOCH:
            if self._sent_epochs.get(broker_id) == registered:
                return False  # the registered process always sends its epoch, so this fetch is from another
        elif broker_epoch != registered:
            return False
        else:
            self._sent_epochs[broker_id] = registered
        self.epochs[broker_id] = broker_epoch
        return True
