"""Four-letter words, and the start and stop of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from embedded_peer import PORT, Scene
from twisted.internet.error import CannotListenError

from kreplica.errors import StorageError
from kreplica.runtime import Runtime
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.errors import (
    NodeExists,
)
from kreplica.zookeeper.records import AddWatchMode
from kreplica.zookeeper.requests import (
    AddWatch,
    Create,
    GetChildren,
    GetData,
)

# --- four letters ---


WORDS = {
    "ruok": "imok",
    "isro": "rw",
    "srvr": "Mode: standalone",
    "stat": "Clients:",
    "mntr": "zk_znode_count\t5",
    "conf": "tickTime=1000",
    "cons": "sid=0x",
    "dump": "/e",
    "wchs": "1 connections watching 1 paths",
    "envi": "zookeeper.version=3.9",
}


@pytest.mark.parametrize("word", WORDS)
def test_four_letter_words_are_answered(scene: Scene, word: str) -> None:
    """The connection is closed afterwards, as ``nc`` expects."""
    client, _ = scene.session()
    scene.ask(client, Create("/e", ephemeral=True))
    scene.ask(client, GetData("/e", watch=True))
    peer = scene.peer()
    peer.collect_raw = True
    peer.send_raw(word.encode())
    scene.run(peer.closed)
    assert WORDS[word] in peer.raw.decode()


# --- starting ---


def test_port_in_use_is_named(scene: Scene) -> None:
    """The second coordinator leaves no file or port open."""
    second = EmbeddedZooKeeper(scene.host.runtime, port=PORT, interface="")
    with pytest.raises(CannotListenError, match=str(PORT)):
        scene.run(second.start())
    scene.run(second.stop())


def test_directory_in_use_is_named(scene: Scene) -> None:
    """Two coordinators on one directory would destroy each other's data."""
    runtime: Runtime = scene.host.runtime
    made: list[EmbeddedZooKeeper] = []
    for port in (3001, 3002):
        store = scene.store()
        made.append(EmbeddedZooKeeper(runtime, "/data/locked", port=port, interface="", store=store))
    scene.run(made[0].start())
    with pytest.raises(StorageError, match="/data/locked is in use"):
        scene.run(made[1].start())
    scene.run(made[0].stop())
    third: Any = EmbeddedZooKeeper(runtime, "/data/locked", port=3003, interface="", store=scene.store())
    scene.run(third.start())
    scene.run(third.stop())


def test_stopped_coordinator_leaves_no_timer(scene: Scene) -> None:
    """A second stop does nothing."""
    peer, _ = scene.session()
    scene.ask(peer, Create("/a"))
    scene.run(scene.coordinator.stop())
    scene.run(scene.coordinator.stop())
    scene.run(peer.closed)
    scene.pass_time(0.1)
    assert scene.host.reactor.getDelayedCalls() == []


def test_create_of_an_existing_znode(scene: Scene) -> None:
    """The error is a response like any other, in order."""
    peer, _ = scene.session()
    scene.ask(peer, Create("/a"))
    assert scene.ask(peer, Create("/a")).error == NodeExists.code


def test_runs_of_one_seed_are_equal() -> None:
    """Each event is the same, also with several clients: the coordinator makes no random choices itself."""

    def trace() -> list[str]:
        lines: list[str] = []
        scene = Scene(seed=7, trace=lines.append)
        peers = [scene.session()[0] for _ in range(3)]
        scene.ask(peers[0], AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE))
        for number in range(60):
            peers[number % 3].send(Create(f"/{number % 7}-", b"x", ephemeral=number % 2 == 0, sequence=True))
            peers[number % 2].send(GetChildren("/"))
            scene.pass_time(0.0005)
        scene.host.power_loss()
        scene.start()
        scene.pass_time(20)
        return lines

    first = trace()
    assert len(first) > 500
    assert trace() == first
