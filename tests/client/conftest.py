"""Fixtures for the client tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from admin_scene import AdminScene
from client_peer import Peer

from kreplica.client.connection import Connection


@pytest.fixture
def peer() -> Peer:
    """A broker that has not accepted a connection yet."""
    return Peer()


@pytest.fixture
def connection(peer: Peer) -> Connection:
    """A connection that the peer has accepted."""
    return peer.accept()


@pytest.fixture(scope="module")
def scene() -> Iterator[AdminScene]:
    """A cluster to administer."""
    admin_scene = AdminScene()
    yield admin_scene
    admin_scene.close()
