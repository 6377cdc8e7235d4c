"""Producer ids, allocated from ZooKeeper in blocks of 1,000."""

from __future__ import annotations

from twisted.internet.defer import Deferred, DeferredLock

from kreplica.cluster import documents, znodes
from kreplica.cluster.documents import ProducerIdBlock
from kreplica.zookeeper import BadVersion, ConnectionLoss, ZooKeeperClient


class ProducerIds:
    """Allocates producer ids that are unique in the cluster.

    Unused ids of a block are lost when the broker stops, which does not matter: there are 2**63 ids.
    """

    def __init__(self, client: ZooKeeperClient, broker_id: int) -> None:
        self._client = client
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._taking: list[Deferred[None]] | None = None
        self._allocation_lock = DeferredLock()

    async def next(self) -> int:
        """Return the next producer id; every thousandth call allocates a new block.

        :raise ZooKeeperError: a new block is needed and cannot be allocated.
        """
        while self._next > self._last:
            await self._take_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _take_block(self) -> None:
        if self._taking is not None:
            allocated: Deferred[None] = Deferred()
            self._taking.append(allocated)
            await allocated
            return
        self._taking = []
        try:
            block = await self.allocate(self._broker_id)
            self._next, self._last = block.first, block.last
        finally:
            waiting, self._taking = self._taking, None
            for waiter in waiting:
                waiter.callback(None)

    async def allocate(self, broker_id: int) -> ProducerIdBlock:
        """Allocate a block for this or another broker.

        Blocks are allocated one at a time: two concurrent allocations for one broker would write identical bytes, and
        after a lost response each could mistake the other's write for its own.

        :raise ZooKeeperError: no block can be allocated now.
        """
        await self._allocation_lock.acquire()
        try:
            return await self._claim(broker_id)
        finally:
            self._allocation_lock.release()

    async def _claim(self, broker_id: int) -> ProducerIdBlock:
        while True:
            data, stat = await self._client.get_data(znodes.LATEST_PRODUCER_ID_BLOCK)
            block = documents.next_producer_id_block(broker_id, data)
            try:
                await self._client.set_data(
                    znodes.LATEST_PRODUCER_ID_BLOCK, documents.encode_producer_id_block(block), stat.version
                )
            except BadVersion:
                continue  # another broker took that block
            except ConnectionLoss:
                if not await self._is_ours(block):
                    continue
            return block

    async def _is_ours(self, block: ProducerIdBlock) -> bool:
        """Return True if a write whose response was lost took effect, by reading it back."""
        data, _ = await self._client.get_data(znodes.LATEST_PRODUCER_ID_BLOCK)
        return data == documents.encode_producer_id_block(block)
