"""Four-letter words, and the start and stop of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from embedded_peer import PORT, Scene
from twisted.internet.error import CannotListenError

from kreplica.errors import StorageError
from kreplica.runtime import Runtime
from kreplica.zookeeper.embedded.server import EmbeddedCoordinator
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
    """Then the connection is closed, as ``nc`` expects."""
    client, _ = scene.session()
    scene.ask(client, Create("/e", ephemeral=True))
    scene.ask(client, GetData("/e", watch=True))
    peer = scene.peer()
    peer.collect_raw = True
    peer.send_raw(word.encode())
    scene.run(peer.closed)
    assert WORDS[word] in peer.raw.decode()


# --- starting ---


def test_a_port_that_is_taken_is_told_by_its_number(scene: Scene) -> None:
    """And the second coordinator leaves nothing open."""
    second = EmbeddedCoordinator(scene.host.runtime, port=PORT, interface="")
    with pytest.raises(CannotListenError, match=str(PORT)):
        scene.run(second.start())
    scene.run(second.stop())


def test_a_directory_that_is_in_use_is_told_by_its_name(scene: Scene) -> None:
    """Two coordinators on one directory would destroy each other's work."""
    runtime: Runtime = scene.host.runtime
    made: list[EmbeddedCoordinator] = []
    for port in (3001, 3002):
        store = scene.store()
        made.append(EmbeddedCoordinator(runtime, "/data/locked", port=port, interface="", store=store))
    scene.run(made[0].start())
    with pytest.raises(StorageError, match="/data/locked is in use"):
        scene.run(made[1].start())
    scene.run(made[0].stop())
    third: Any = EmbeddedCoordinator(runtime, "/data/locked", port=3003, interface="", store=scene.store())
    scene.run(third.start())
    scene.run(third.stop())


def test_a_stopped_coordinator_leaves_no_timer(scene: Scene) -> None:
    """And stopping again does nothing."""
    peer, _ = scene.session()
    scene.ask(peer, Create("/a"))
    scene.run(scene.coordinator.stop())
    scene.run(scene.coordinator.stop())
    scene.run(peer.closed)
    scene.pass_time(0.1)
    assert scene.host.reactor.getDelayedCalls() == []


def test_exists_again_says_so(scene: Scene) -> None:
    """A failed create is an answer like any other, in its place in the order."""
    peer, _ = scene.session()
    scene.ask(peer, Create("/a"))
    assert scene.ask(peer, Create("/a")).error == NodeExists.code


def test_one_seed_is_one_run() -> None:
    """Event by event, also under several clients: nothing in the coordinator depends on chance of its own."""

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
