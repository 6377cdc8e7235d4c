"""Random traffic: with all sizes, limits and timings, every client receives its responses in order."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random
from typing import Any

import pytest
from server_scene import Client, Scene, fetch_frame, play, produce_frame, produced
from twisted.internet.defer import Deferred

from kreplica.runtime.disk import File, FileRange
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.request import Request
from kreplica.wire.messages import FETCH, PRODUCE

REQUESTS = 40
CLIENTS = 4
FILE_BYTES = 600_000


class Traffic:
    """The traffic for one seed."""

    def __init__(self, seed: int, path: str = "/data/segment") -> None:
        self.path = path
        self.random = Random(seed)
        self.parked: deque[Request] = deque()
        self.content = self.random.randbytes(FILE_BYTES)
        self.file: File

    def bounds(self) -> Bounds:
        """Return small limits, so that all of them are reached."""
        random = self.random
        return Bounds(
            requests_outstanding_max=random.choice([1, 2, 5, 512]),
            request_bytes_outstanding_max=random.choice([1, 50_000, 2_000_000]),
            response_bytes_outstanding_max=random.choice([1, 100_000, 5_000_000]),
            partial_bytes_max=random.choice([1, 100_000, 10_000_000]),
            partial_stall_s=1e9,
        )

    def produce(self, request: Request) -> None:
        records = request.body["topic_data"][0]["partition_data"][0]["records"]
        acks, size = request.body["acks"], len(records)
        assert bytes(records) == self.content[:size]
        if acks == 0:
            request.complete_without_response()
        elif acks == 1:
            request.respond(produced(size))
        else:
            self.parked.append(request)

    def fetch(self, request: Request) -> None:
        start = request.correlation_id * 7919 % FILE_BYTES
        records: Any = FileRange(self.file, start, min(request.correlation_id * 104729 % 300_000, FILE_BYTES - start))
        if request.correlation_id % 3 == 0:
            records = records.read()
        row = {"partition_index": 0, "records": records}
        request.respond({"responses": [{"topic": "t", "partitions": [row]}]})

    async def play(self, scene: Scene) -> None:
        self.file = scene.runtime.disk.open(self.path, create=True)
        self.file.write_at(0, [self.content])
        scene.handlers.produce = self.produce  # type: ignore[method-assign]
        scene.handlers.fetch = self.fetch  # type: ignore[method-assign]
        scene.start(self.bounds())
        clients = [await scene.connect() for _ in range(CLIENTS)]
        runs = [Deferred.fromCoroutine(self._client(scene, client)) for client in clients]
        while not all(each.called for each in runs):
            await scene.pause(self.random.uniform(0, 0.01))
            for _ in range(self.random.choice([0, 1, 1, 5])):
                if self.parked:
                    request = self.parked[self.random.randrange(len(self.parked))]
                    self.parked.remove(request)
                    request.respond(produced(0))
        for each in runs:
            await each

    async def _client(self, scene: Scene, client: Client) -> None:
        random = self.random
        expected: deque[tuple[int, int]] = deque()
        for number in range(1, REQUESTS + 1):
            if random.random() < 0.3:
                client.send(fetch_frame(number))
                expected.append((number, FETCH.key))
            else:
                acks = random.choice([-1, -1, 0, 1])
                size = random.choice([0, 10, 1000, 9000, random.randrange(FILE_BYTES)])
                client.send(produce_frame(number, self.content[:size], acks))
                if acks:
                    expected.append((number, PRODUCE.key))
            if random.random() < 0.2:
                client.transport.pauseProducing()
                await scene.pause(random.uniform(0, 0.05))
                client.transport.resumeProducing()
        for number, key in expected:
            if key == PRODUCE.key:
                assert (await client.answer())[0] == number
            else:
                start = number * 7919 % FILE_BYTES
                size = min(number * 104729 % 300_000, FILE_BYTES - start)
                assert await client.next_fetch() == (number, self.content[start : start + size])


@pytest.mark.parametrize("environment", ["epoll", "tls", "twisted"])
@pytest.mark.parametrize("seed", range(3))
def test_random_traffic_on_real_sockets(environment: str, seed: int, tmp_path: Path) -> None:
    play(environment, Traffic(seed, str(tmp_path / "segment")).play, timeout_s=30.0)


@pytest.mark.parametrize("environment", ["epoll simulated", "twisted simulated"])
@pytest.mark.parametrize("seed", range(12))
def test_random_traffic(environment: str, seed: int) -> None:
    """Clients that produce, fetch, wait and pause at random get correct responses in order, under tiny limits."""
    play(environment, Traffic(seed).play, timeout_s=600.0)
