"""Random requests to a real ZooKeeper and to the embedded coordinator get the same responses.

Transaction IDs differ, because ZooKeeper also uses some for failed requests, so only their order is compared. Of times,
only their equality with one another is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from blocking_client import BlockingClient, Reply

from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import (
    OPEN_ACL,
    READ_ACL,
    XID_AUTH,
    XID_WATCH_EVENT,
    Acl,
    AddWatchMode,
    Opcode,
    WatcherType,
    decode_watch_event,
)
from kreplica.zookeeper.requests import (
    AddWatch,
    Auth,
    Check,
    CheckWatches,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Operation,
    RemoveWatches,
    Request,
    SetAcl,
    SetData,
    Sync,
    opcode_of,
)
from kreplica.zookeeper.responses import (
    Created,
    decode_acl,
    decode_children,
    decode_children_and_stat,
    decode_count,
    decode_created,
    decode_data,
    decode_multi_read_results,
    decode_multi_results,
    decode_path,
    decode_stat,
)
from tests.support.coordinator import CoordinatorProcess
from tests.support.zookeeper_scene import RealServerUnderTest

REQUEST_COUNT = 250
ACLS = (OPEN_ACL, OPEN_ACL, OPEN_ACL, READ_ACL, (Acl(31, "auth", ""),), (Acl(31, "nobody", "x"),), ())
NAMES = ("a", "b", "c", "", ".", "a\x01")

EMPTY_RESPONSES = {Opcode.DELETE, Opcode.REMOVE_WATCHES, Opcode.CHECK_WATCHES, Opcode.AUTH}
DECODERS: dict[int, Any] = {
    Opcode.CREATE: decode_path,
    Opcode.CREATE2: decode_created,
    Opcode.SET_DATA: decode_stat,
    Opcode.SET_ACL: decode_stat,
    Opcode.EXISTS: decode_stat,
    Opcode.GET_DATA: decode_data,
    Opcode.GET_ACL: decode_acl,
    Opcode.GET_CHILDREN: decode_children,
    Opcode.GET_CHILDREN2: decode_children_and_stat,
    Opcode.GET_EPHEMERALS: decode_children,
    Opcode.GET_ALL_CHILDREN_NUMBER: decode_count,
    Opcode.ADD_WATCH: decode_count,
    Opcode.SYNC: decode_path,
    Opcode.MULTI: decode_multi_results,
}


class RequestGenerator:
    """Generates requests, most of them valid."""

    def __init__(self, seed: int, root: str) -> None:
        self._random = Random(seed)
        self._root = root

    def choose(self, clients: list[BlockingClient]) -> BlockingClient:
        return self._random.choice(clients)

    def path(self) -> str:
        depth = self._random.choice((1, 1, 1, 2, 2, 3))
        names = self._random.choices(NAMES, (40, 30, 20, 1, 1, 1), k=depth)
        return "/".join([self._root, *names])

    def version(self) -> int:
        return self._random.choice((-1, -1, -1, 0, 1, 2))

    def flag(self) -> bool:
        return self._random.random() < 0.2

    def operation(self) -> Operation:
        path, random = self.path(), self._random
        kind = random.choice(("create", "create", "create", "set", "set", "delete", "check"))
        if kind == "create":
            data = random.choice((b"", b"x", None, b"data"))
            return Create(path, data, random.choice(ACLS), self.flag(), self.flag(), random.random() < 0.5)
        if kind == "set":
            return SetData(path, random.choice((b"", b"y", None, b"longer data")), self.version())
        return Delete(path, self.version()) if kind == "delete" else Check(path, self.version())

    def request(self) -> Request:
        random, path = self._random, self.path()
        draw = random.random()
        if draw < 0.4:
            operation = self.operation()
            # ZooKeeper supports check only within a multi.
            return operation if not isinstance(operation, Check) else Exists(path, self.flag())
        if draw < 0.55:
            return Multi([self.operation() for _ in range(random.randrange(5))])
        if draw < 0.6:
            return MultiRead([random.choice((GetData, GetChildren))(self.path()) for _ in range(random.randrange(4))])
        reads: list[Request] = [
            Exists(path, self.flag()),
            GetData(path, self.flag()),
            GetChildren(path, self.flag(), self.flag()),
            GetAcl(path),
            GetAllChildrenNumber(path),
            GetEphemerals(self._root),
            Sync(path),
            SetAcl(path, random.choice(ACLS), self.version()),
            AddWatch(path, random.choice(list(AddWatchMode))),
            RemoveWatches(path, random.choice(list(WatcherType))),
            CheckWatches(path, random.choice(list(WatcherType))),
        ]
        return random.choice([*reads[:3], *reads[:3], *reads])


def decode(request: Request, reply: Reply) -> Any:
    """Return a response or event in comparable form; names are sorted, because their order is undefined."""
    if reply.xid == XID_WATCH_EVENT:
        event = decode_watch_event(Reader(reply.body))
        return event.type.name, event.path
    if reply.error or opcode_of(request) in EMPTY_RESPONSES:
        return reply.error
    end = len(reply.body)
    if isinstance(request, MultiRead):
        results = decode_multi_read_results(reply.body, 0, end, [read.path for read in request.reads])
        return [sorted(each) if isinstance(each, list) else getattr(each, "code", each) for each in results]
    value = DECODERS[opcode_of(request)](reply.body, 0, end)
    if isinstance(request, GetChildren) and request.with_stat:
        return sorted(value[0]), value[1]
    return sorted(value) if isinstance(request, GetChildren | GetEphemerals) else value


class StatNormalizer:
    """Replaces transaction IDs and times in stats by values that are comparable between servers."""

    def __init__(self, session_ids: list[int]) -> None:
        self._session_ids = session_ids
        self._zxids: dict[int, str] = {}

    def normalize(self, value: Any) -> Any:
        if isinstance(value, Created):
            return value.path, self.normalize(value.stat)
        if isinstance(value, tuple) and len(value) == 11:
            czxid, mzxid, ctime, mtime, *numbers, pzxid = value
            owner = self._session_ids.index(numbers[3]) if numbers[3] else None
            zxids = tuple(self._zxids.setdefault(zxid, f"z{len(self._zxids)}") for zxid in (czxid, mzxid, pzxid))
            return zxids, ctime == mtime or mzxid != czxid, numbers[:3], owner, numbers[4:]
        if isinstance(value, list | tuple):
            return type(value)(map(self.normalize, value)) if type(value) in (list, tuple) else value
        return value


def transcript(port: int, seed: int) -> list[tuple[Any, Any]]:
    """Send the random requests of a seed in two sessions, one of them authenticated, and return all results."""
    root = f"/differential-{seed}"
    clients = [BlockingClient(port), BlockingClient(port)]
    clients[0].call(Create(root))
    clients[1].exchange(Auth("digest", b"ann:secret"), xid=XID_AUTH)
    normalizer, generator, lines = (
        StatNormalizer([client.session.session_id for client in clients]),
        RequestGenerator(seed, root),
        [],
    )
    for number in range(1, REQUEST_COUNT):
        client, request = generator.choose(clients), generator.request()
        replies = client.exchange(request, number)
        lines.append((request, [normalizer.normalize(decode(request, reply)) for reply in replies]))
    for client in clients:
        client.close()
    return lines


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    directory: Path = tmp_path_factory.mktemp("coordinator")
    with CoordinatorProcess(directory) as coordinator:
        yield coordinator


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 500))])
def test_both_servers_send_the_same_responses(
    real_zookeeper: RealServerUnderTest, coordinator: CoordinatorProcess, seed: int
) -> None:
    """Paths, data, stats, versions, errors and events, as well as the order of events and responses, are the same."""
    expected = transcript(real_zookeeper.zookeeper.servers[0].port, seed)
    found = transcript(coordinator.port, seed)
    for line, (expected_results, results) in enumerate(zip(expected, found, strict=True)):
        assert results == expected_results, f"request {line}"
