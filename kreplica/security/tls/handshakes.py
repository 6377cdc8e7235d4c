"""In-memory handshakes between a server and a client in this process."""

from __future__ import annotations

from typing import NamedTuple

from OpenSSL import SSL

from kreplica.security.tls.contexts import ClientTls
from kreplica.security.tls.handshake_errors import tls_reason

_ROUNDS_MAX = 20
_BYTES = 65_536


class HandshakeFailure(NamedTuple):
    """A handshake that failed.

    :param at_client: True if the client rejected the server's certificate; False if the server rejected the client.
    """

    at_client: bool
    reason: str


def handshake_failure(server: SSL.Context, client: ClientTls) -> HandshakeFailure | None:
    """Return the reason why a client and a server cannot connect, None if they can; host names are not verified."""
    verification = client.creator("localhost", verifies_host=False)
    ends = {True: verification.clientConnectionForTLS(None), False: SSL.Connection(server, None)}
    ends[True].set_connect_state()
    ends[False].set_accept_state()
    for _ in range(_ROUNDS_MAX):
        for at_client, end in ends.items():
            try:
                end.do_handshake()
                if at_client:
                    _read(end)  # in TLS 1.3, the server rejects a client's certificate after the client's handshake
            except SSL.WantReadError:
                pass
            except SSL.Error as error:
                return HandshakeFailure(at_client, verification.certificate_error or tls_reason(error))
        if not any([_move(ends[True], ends[False]), _move(ends[False], ends[True])]):
            return None
    return HandshakeFailure(False, "the handshake did not complete")


def _read(end: SSL.Connection) -> None:
    end.recv(1)


def _move(source: SSL.Connection, target: SSL.Connection) -> bool:
    """Pass sent bytes to the other end; return True if there were any."""
    try:
        data = source.bio_read(_BYTES)
    except SSL.WantReadError:
        return False
    target.bio_write(data)
    return True
