"""What the tests of this room share."""

from __future__ import annotations

import pytest
from client_peer import Peer

from kreplica.client.connection import Connection


@pytest.fixture
def peer() -> Peer:
    """A broker that nobody is connected to."""
    return Peer()


@pytest.fixture
def connection(peer: Peer) -> Connection:
    """A connection to the peer."""
    return peer.accept()
