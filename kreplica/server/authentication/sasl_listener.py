"""Listener whose connections authenticate with SASL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kreplica.runtime import Reactor
from kreplica.server.authentication.sasl_config import SaslConfig
from kreplica.server.authentication.sasl_session import SaslSession, session_of
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Handler, Request
from kreplica.server.protocol.server_context import Resources
from kreplica.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE


class SaslListener:
    """Authenticates the connections of a listener.

    :ivar handshake: dispatches requests of connections that are not authenticated yet.
    :ivar frame_received: dispatches requests of authenticated connections.
    :ivar failures: number of failed authentications.
    """

    def __init__(self, resources: Resources, config: SaslConfig) -> None:
        self.config = config
        self.reactor: Reactor = resources.reactor
        self.frame_received: Callable[[Connection, memoryview], object] = resources.frame_received
        self.frame_bytes_max = resources.bounds.request_bytes_max
        self.failures = 0
        entries = (
            HandlerEntry.of(SASL_HANDSHAKE, sasl_handshake),
            HandlerEntry.of(SASL_AUTHENTICATE, sasl_authenticate),
        )
        self.handshake = Dispatch(
            {entry.api.key: entry for entry in entries},
            resources.metrics,
            resources.reactor.seconds,
            resources.flush_scope,
            resources.bounds,
            advertised=resources.dispatch.table,
        )
        versions = self.handshake.table[API_VERSIONS.key]
        self.handshake.table[API_VERSIONS.key] = replace(versions, handle=partial(api_versions, versions.handle))

    def attach(self, connection: Connection) -> None:
        """Require a new connection to authenticate."""
        connection.sasl = SaslSession(self, connection)


def api_versions(handle: Handler, request: Request) -> None:
    """Handle ApiVersions on a connection whose listener uses SASL.

    :param handle: handles an accepted request.
    """
    session = session_of(request.connection)
    assert session is not None
    session.versions(request, handle)


def sasl_handshake(request: Request) -> None:
    """Handle SaslHandshake on a connection whose listener uses SASL."""
    session = session_of(request.connection)
    assert session is not None
    session.begin(request)


def sasl_authenticate(request: Request) -> None:
    """Handle SaslAuthenticate on a connection whose listener uses SASL."""
    session = session_of(request.connection)
    assert session is not None
    session.authenticate(request)
