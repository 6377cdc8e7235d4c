"""A listening port that the broker processes of one machine share, so that one address reaches the whole cluster.

The kernel gives each new connection to one of the processes listening there at the time (SO_REUSEPORT).  They must
belong to one user.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.interfaces import IReactorSocket

from kreplica.errors import SettingsError


def listen_shared(reactor: Any, host: str, port: int, factory: Any, backlog: int) -> Any:
    """Return a Twisted listening port.

    :param host: address to bind; empty for all IPv4 addresses.
    :raise OSError: the address cannot be bound, for example because another program uses the port exclusively.
    :raise SettingsError: several brokers run in this process.
    """
    if not IReactorSocket.providedBy(reactor):
        raise SettingsError("kreplica.bootstrap.port requires a process for each broker (standalone: --processes)")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as shared:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            shared.setsockopt(socket.SOL_SOCKET, option, 1)
        shared.bind((host, port))
        shared.listen(backlog)
        shared.setblocking(False)
        # Twisted duplicates the descriptor.
        return reactor.adoptStreamPort(shared.fileno(), family, factory)
