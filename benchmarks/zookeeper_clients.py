"""ZooKeeper clients that do the same work on the same server: kreplica's, ZooKeeper's for Java, kazoo, a raw socket.

The time to connect is not measured.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kazoo.client import KazooClient
from twisted.internet.defer import Deferred

from benchmarks.zookeeper_experiments import EXPERIMENT_TIME_S_MAX, Experiment
from benchmarks.zookeeper_java import JavaClient
from benchmarks.zookeeper_raw import (
    RawSocket,
    decode_get,
    decode_multi,
    decode_stat,
    encode_get,
    multi_encoder,
    set_encoder,
)
from kreplica.runtime.lean_polling import install_lean_polling
from kreplica.service.process.process import COLLECTION_THRESHOLDS
from kreplica.zookeeper import Check, Create, Operation, SetData, ZooKeeperClient, write_units
from tests.support.real_reactor import run as run_reactor

SESSION_TIMEOUT_S = 30


@dataclass(frozen=True)
class Target:
    """A client to measure.

    :param run: runs an experiment on these znodes with this data, and returns the seconds that it took.
    :param cpu_s: returns the CPU time of the client's process.
    """

    run: Callable[[int, Experiment, Sequence[str], bytes], float]
    cpu_s: Callable[[], float] = time.process_time


def cut(items: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return consecutive parts of this size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def ours(port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> float:
    """Run with ``kreplica.zookeeper``, in a coroutine, with a broker's event loop and garbage collection."""
    from twisted.internet import reactor

    install_lean_polling(reactor)
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    return run_reactor(_ours(port, experiment, paths, data), EXPERIMENT_TIME_S_MAX)


async def _ours(port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> float:
    client = _client(port)
    await client.start()
    began = time.perf_counter()
    before: list[Deferred[Any]] = []
    part: list[Deferred[Any]] = []
    half = max(experiment.window // 2, 1)
    requests = _our_requests(client, experiment, paths, data)
    try:
        while part := list(islice(requests, half)):
            if experiment.window == 1:
                await part[0]
                continue
            for response in before:
                await response
            before = part
        for response in before:
            await response
        return time.perf_counter() - began
    finally:
        for response in (*before, *part):
            response.addErrback(lambda _: None)  # the first error is the outcome
        await client.close()


def _client(port: int) -> ZooKeeperClient:
    from twisted.internet import reactor

    return ZooKeeperClient(
        reactor,  # type: ignore[arg-type]
        f"127.0.0.1:{port}",
        random=random.Random(1),
        session_timeout_ms=SESSION_TIMEOUT_S * 1000,
    )


def _our_requests(
    client: ZooKeeperClient, experiment: Experiment, paths: Sequence[str], data: bytes
) -> Iterator[Deferred[Any]]:
    if experiment.kind == "get":
        return (client.get_data(path) for path in paths)
    if experiment.kind == "set":
        return (client.set_data(path, data) for path in paths)
    head: list[Operation] = [Check(experiment.check, 0)] if experiment.check else []
    return (client.multi([*head, *(SetData(path, data) for path in part)]) for part in cut(paths, experiment.size))


def kazoo(port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> float:
    """Run with kazoo, on its own threads."""
    client = KazooClient(f"127.0.0.1:{port}", timeout=SESSION_TIMEOUT_S)
    client.start()
    began = time.perf_counter()
    before: list[Any] = []
    half = max(experiment.window // 2, 1)
    requests = _kazoo_requests(client, experiment, paths, data)
    try:
        while part := list(islice(requests, half)):
            if experiment.window == 1:
                _kazoo_wait(part[0])
                continue
            for response in before:
                _kazoo_wait(response)
            before = part
        for response in before:
            _kazoo_wait(response)
        return time.perf_counter() - began
    finally:
        client.stop()
        client.close()


def _kazoo_requests(client: Any, experiment: Experiment, paths: Sequence[str], data: bytes) -> Iterator[Any]:
    if experiment.kind == "get":
        return (client.get_async(path) for path in paths)
    if experiment.kind == "set":
        return (client.set_async(path, data) for path in paths)
    return (_kazoo_multi(client, experiment.check, part, data) for part in cut(paths, experiment.size))


def _kazoo_multi(client: Any, check: str | None, paths: Sequence[str], data: bytes) -> Any:
    transaction = client.transaction()
    if check is not None:
        transaction.check(check, 0)
    for path in paths:
        transaction.set_data(path, data)
    return transaction.commit_async()


def _kazoo_wait(response: Any) -> None:
    result = response.get()
    if isinstance(result, list) and any(isinstance(each, Exception) for each in result):
        raise AssertionError(f"a multi failed: {result}")


def raw(port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> float:
    """Run with a handwritten socket."""
    connection = RawSocket(port)
    began = time.perf_counter()
    if experiment.kind == "get":
        connection.run(encode_get, decode_get, paths, experiment.window)
    elif experiment.kind == "set":
        connection.run(set_encoder(data), decode_stat, paths, experiment.window)
    else:
        parts = cut(paths, experiment.size)
        connection.run(multi_encoder(data, experiment.check), decode_multi, parts, experiment.window)
    took = time.perf_counter() - began
    connection.close()
    return took


JAVA = JavaClient()
TARGETS = {
    "kreplica": Target(ours),
    "java": Target(JAVA.run, JAVA.cpu_s),
    "kazoo": Target(kazoo),
    "raw": Target(raw),
}


def prepare(port: int, root: str, checked: str, paths: Sequence[str], data: bytes) -> None:
    """Create the znodes."""
    run_reactor(_prepare(port, root, checked, paths, data), EXPERIMENT_TIME_S_MAX)


async def _prepare(port: int, root: str, checked: str, paths: Sequence[str], data: bytes) -> None:
    client = _client(port)
    await client.start()
    await client.multi([Create(root), Create(checked)])
    outcomes = await write_units(client, [[Create(path, data)] for path in paths])
    await client.close()
    if any(isinstance(outcome, Exception) for outcome in outcomes):
        raise AssertionError("not every znode could be created")
