"""Four-letter words, and starting and stopping a coordinator."""

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

# --- four-letter words ---


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
def test_four_letter_words(scene: Scene, word: str) -> None:
    """Each word gets its response, and then the connection is closed, as ``nc`` expects."""
    client, _ = scene.session()
    scene.request(client, Create("/e", ephemeral=True))
    scene.request(client, GetData("/e", watch=True))
    peer = scene.peer()
    peer.collect_raw = True
    peer.send_raw(word.encode())
    scene.run(peer.closed)
    assert WORDS[word] in peer.raw.decode()


# --- starting ---


def test_port_in_use_is_named(scene: Scene) -> None:
    """A second coordinator on the port fails with an error that contains the port, and can be stopped."""
    second = EmbeddedZooKeeper(scene.host.runtime, port=PORT, interface="")
    with pytest.raises(CannotListenError, match=str(PORT)):
        scene.run(second.start())
    scene.run(second.stop())


def test_directory_in_use_is_named(scene: Scene) -> None:
    """A second coordinator would destroy the data of the first, so it fails with an error that names the directory."""
    runtime: Runtime = scene.host.runtime
    coordinators: list[EmbeddedZooKeeper] = []
    for port in (3001, 3002):
        store = scene.store()
        coordinators.append(EmbeddedZooKeeper(runtime, "/data/locked", port=port, interface="", store=store))
    scene.run(coordinators[0].start())
    with pytest.raises(StorageError, match="/data/locked is in use"):
        scene.run(coordinators[1].start())
    scene.run(coordinators[0].stop())
    third: Any = EmbeddedZooKeeper(runtime, "/data/locked", port=3003, interface="", store=scene.store())
    scene.run(third.start())
    scene.run(third.stop())


def test_stopped_coordinator_leaves_no_timer(scene: Scene) -> None:
    """Stopping it a second time has no effect."""
    peer, _ = scene.session()
    scene.request(peer, Create("/a"))
    scene.run(scene.coordinator.stop())
    scene.run(scene.coordinator.stop())
    scene.run(peer.closed)
    scene.pass_time(0.1)
    assert scene.host.reactor.getDelayedCalls() == []


def test_create_of_an_existing_znode_is_refused(scene: Scene) -> None:
    peer, _ = scene.session()
    scene.request(peer, Create("/a"))
    assert scene.request(peer, Create("/a")).error == NodeExists.code


def test_runs_with_the_same_seed_are_equal() -> None:
    """Two runs with several clients and a power loss have the same trace: the coordinator adds no randomness."""

    def trace() -> list[str]:
        lines: list[str] = []
        scene = Scene(seed=7, trace=lines.append)
        peers = [scene.session()[0] for _ in range(3)]
        scene.request(peers[0], AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE))
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
