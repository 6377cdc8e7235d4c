"""Writes of partition states: one by one, pipelined, one per multi, and in guarded batches."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.cluster import documents
from kreplica.model import LeaderAndIsr
from kreplica.runtime.lean_polling import install_lean_polling
from kreplica.zookeeper import Check, Create, SetData, ZooKeeperClient, write_units
from tests.support.real_reactor import run as run_reactor

ROOT = "/redesign"
GUARD = Check(ROOT, 0)
WINDOW = 1_000
TIME_S_MAX = 600.0

Writer = Callable[[ZooKeeperClient, Sequence[str], bytes], Awaitable[None]]


async def _one_by_one(client: ZooKeeperClient, paths: Sequence[str], data: bytes) -> None:
    for path in paths:
        await client.set_data(path, data)


async def _pipelined(client: ZooKeeperClient, paths: Sequence[str], data: bytes) -> None:
    await _in_window(client.set_data(path, data) for path in paths)


async def _one_in_each_multi(client: ZooKeeperClient, paths: Sequence[str], data: bytes) -> None:
    await _in_window(client.multi([GUARD, SetData(path, data)]) for path in paths)


async def _guarded_batches(client: ZooKeeperClient, paths: Sequence[str], data: bytes) -> None:
    for outcome in await write_units(client, [[SetData(path, data)] for path in paths], guard=GUARD):
        if isinstance(outcome, Exception):
            raise outcome


async def _in_window(requests: Any) -> None:
    before: list[Deferred[Any]] = []
    while part := list(islice(requests, WINDOW // 2)):
        for response in before:
            await response
        before = part
    for response in before:
        await response


WRITERS: dict[str, Writer] = {
    "one by one": _one_by_one,
    "pipelined": _pipelined,
    "one per multi": _one_in_each_multi,
    "guarded batches": _guarded_batches,
}


def prepare_states(port: int, count: int) -> None:
    """Create this number of partition states below ``ROOT``."""

    async def create() -> None:
        client = await _connected(port)
        await client.create(ROOT)
        outcomes = await write_units(client, [[Create(_path(number), _data())] for number in range(count)])
        await client.close()
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]

    run_reactor(create(), TIME_S_MAX)


def seconds_of_writes(port: int, sizes: Sequence[int], limit_s: float) -> dict[str, list[tuple[float, bool]]]:
    """Measure every writer with each number of partitions, in ascending order.

    :param limit_s: if a number of partitions would take longer than this, its time is computed from the rate with the
        last measured number.
    :return: for each writer and size: the seconds, and True if they are computed.
    """
    from twisted.internet import reactor

    install_lean_polling(reactor)
    return run_reactor(_measure(port, sizes, limit_s), TIME_S_MAX)


async def _measure(port: int, sizes: Sequence[int], limit_s: float) -> dict[str, list[tuple[float, bool]]]:
    client = await _connected(port)
    results_by_way: dict[str, list[tuple[float, bool]]] = {}
    for name, write in WRITERS.items():
        results = results_by_way[name] = []
        each_s = 0.0
        for size in sizes:
            if each_s * size > limit_s:
                results.append((each_s * size, True))
                continue
            paths = [_path(number) for number in range(size)]
            started_s = time.perf_counter()
            await write(client, paths, _data())
            took_s = time.perf_counter() - started_s
            each_s = took_s / size
            results.append((took_s, False))
    await client.close()
    return results_by_way


async def _connected(port: int) -> ZooKeeperClient:
    from twisted.internet import reactor

    client = ZooKeeperClient(
        reactor,  # type: ignore[arg-type]
        f"127.0.0.1:{port}",
        random=random.Random(1),
        session_timeout_ms=30_000,
    )
    await client.start()
    return client


def _path(number: int) -> str:
    return f"{ROOT}/{number}"


def _data() -> bytes:
    return documents.encode_partition_state(LeaderAndIsr(1, 1, (1, 2, 3), 1))
