"""Consumer that follows one partition with long polls, across broker restarts."""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.testing.clients.wire_client import WireClient, cancel, name_of, run_and_close
from kreplica.testing.histories.record_history import Listener

WAIT_MS = 500
RETRY_S_MIN, RETRY_S_MAX = 0.05, 1.0


class TailingConsumer:
    """Reads from offset 0 until ``finish``.

    :ivar position: the next fetch offset.
    :ivar resets: number of times the position was out of range and was reset to 0.
    :ivar errors: number of errors by name.
    """

    def __init__(self, reactor: Reactor, client: WireClient, topic: str, partition: int, history: Listener) -> None:
        self.position = 0
        self.resets = 0
        self.errors: Counter[str] = Counter()
        self._reactor = reactor
        self._client = client
        self._topic = topic
        self._partition = partition
        self._history = history
        self._finishing = False
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        self._history.sought(self._partition, self.position, self._client.client_id)
        self._running = Deferred.fromCoroutine(self._run())

    async def finish(self) -> None:
        """Stop after the pending response."""
        assert self._running is not None, "the consumer was not started"
        self._finishing = True
        await self._running

    async def abandon(self) -> None:
        assert self._running is not None, "the consumer was not started"
        await cancel(self._running)

    async def _run(self) -> None:
        await run_and_close(self._client, self._read_until_finished())

    async def _read_until_finished(self) -> None:
        retry_s = RETRY_S_MIN
        while not self._finishing:
            try:
                await self._read()
                retry_s = RETRY_S_MIN
            except (ClientError, KafkaError, ProtocolError) as error:
                self.errors[name_of(error)] += 1
                await self._client.close()
                await pause(self._reactor, retry_s)
                retry_s = min(retry_s * 2, RETRY_S_MAX)
                if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.resets += 1
                    self.position = 0
                    self._history.sought(self._partition, self.position, self._client.client_id)

    async def _read(self) -> None:
        records = await self._client.fetch(self._topic, self._partition, self.position, wait_ms=WAIT_MS)
        if records:
            self._history.read(self._partition, records, self._client.client_id)
            self.position = records[-1].offset + 1
