"""Fixtures of the client tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from admin_scene import AdminScene
from client_peer import Peer

from kreplica.client.connection import Connection


@pytest.fixture
def peer() -> Peer:
    """A broker without a connection."""
    return Peer()


@pytest.fixture
def connection(peer: Peer) -> Connection:
    """A connection to the peer."""
    return peer.accept()


@pytest.fixture(scope="module")
def scene() -> Iterator[AdminScene]:
    """A cluster to administer."""
    made = AdminScene()
    yield made
    made.close()
