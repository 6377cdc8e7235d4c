"""Socket of a TLS connection, with the methods of a non-blocking plaintext socket.

OpenSSL reads from and writes to memory.  ``TlsSocket`` calls its functions through pyOpenSSL's binding, because
pyOpenSSL's own methods allocate a buffer for each TLS record, and librdkafka sends dozens of records per Produce.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import MSG_MORE, socket
from typing import Any, NoReturn

from OpenSSL import SSL
from OpenSSL._util import ffi, lib

from kreplica.security.tls.handshake_errors import tls_reason

RECEIVE_BYTES_MAX = 64 * 1024
"""Maximum encrypted bytes per socket read; OpenSSL keeps a buffer of this size for each connection."""

CHUNK_BYTES = 64 * 1024
"""Maximum bytes that are encrypted at a time; OpenSSL keeps a buffer of this size for each connection."""

SEND_BYTES_MAX = 1024 * 1024
"""Bytes after which ``send`` returns, so that one connection does not starve the others."""

UNSENT_BYTES_MAX = 4 * CHUNK_BYTES
"""Maximum encrypted bytes that wait for the socket.  Only a peer that reads nothing and constantly requests new keys
(TLS 1.3) can exceed it."""

_received = memoryview(bytearray(RECEIVE_BYTES_MAX))
_received_pointer = ffi.from_buffer(_received)
_discarded = ffi.new("char[]", 2 * CHUNK_BYTES)
_data = ffi.new("char **")
_ssl_read, _ssl_write, _bio_read, _bio_write = lib.SSL_read, lib.SSL_write, lib.BIO_read, lib.BIO_write


class TlsSocket:
    """Encrypts the data sent on a socket and decrypts received data; performs the handshake as a server.

    Like those of a socket, the methods raise ``BlockingIOError`` if they can make no progress, and another ``OSError``
    if the connection has failed.

    :param connected: non-blocking socket; its other methods, such as ``setsockopt``, can be called on this object.
    :ivar is_open: the handshake is complete.
    :ivar has_ended: the peer has ended the TLS connection, and all its data was returned.
    :ivar error: OpenSSL's error that ended the connection; None if there was none.
    :ivar received: number of encrypted bytes of the last read.
    :ivar unsent: number of encrypted bytes that wait until the socket is writable; ``flush`` sends them.
    """

    __slots__ = (
        "_connection",
        "_has_input",
        "_incoming",
        "_is_blocked",
        "_is_shut",
        "_outgoing",
        "_socket",
        "_ssl",
        "error",
        "has_ended",
        "is_open",
        "received",
        "unsent",
    )

    def __init__(self, connected: socket, connection: SSL.Connection) -> None:
        connection.set_accept_state()
        self._socket = connected
        self._connection = connection
        self._ssl = connection._ssl
        lib.SSL_clear_mode(self._ssl, lib.SSL_MODE_ENABLE_PARTIAL_WRITE)  # otherwise a call writes only one record
        self._incoming = connection._into_ssl
        self._outgoing = connection._from_ssl
        self._has_input = False
        self._is_blocked = False
        self._is_shut = False
        self.is_open = False
        self.has_ended = False
        self.received = 0
        self.error: SSL.Error | None = None
        self.unsent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    @property
    def connection(self) -> SSL.Connection:
        """The TLS connection, for querying its properties."""
        return self._connection

    # --- reading -----------------------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        """Read once and decrypt all complete records; return the number of bytes, 0 at the end.

        The first calls perform the handshake.  The one that completes it raises ``BlockingIOError`` too, and must be
        followed by another call, since the client's first data may have arrived.

        :param buffer: larger than ``RECEIVE_BYTES_MAX`` plus one record (16 KB).
        """
        return self._after_read(self._decrypt(buffer)) if self._receive() else 0

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Fill several buffers like ``recv_into``.

        :param buffers: the last one must be larger than ``RECEIVE_BYTES_MAX`` plus one record.
        """
        if not self._receive():
            return (0,)
        size = 0
        for buffer in buffers:
            decrypted = self._decrypt(buffer)
            size += decrypted
            if decrypted < len(buffer):
                break
        return (self._after_read(size),)

    def _receive(self) -> bool:
        """Pass encrypted bytes to OpenSSL; return False at the end."""
        if self.has_ended:
            return False
        if self._has_input:
            self._has_input = False
            return True
        size = self.received = self._socket.recv_into(_received)
        if not size:
            return False
        _bio_write(self._incoming, _received_pointer, size)
        if not self.is_open:
            self._continue_handshake()
            raise BlockingIOError
        return True

    def _continue_handshake(self) -> None:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            self._fail(error)
        else:
            self.is_open = self._has_input = True
        self.flush()

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt until the buffer is full or all complete records are read; return the number of bytes."""
        ssl, capacity, size = self._ssl, len(buffer), 0
        pointer = ffi.from_buffer(buffer)
        while size < capacity:
            decrypted = _ssl_read(ssl, pointer + size, capacity - size)
            if decrypted <= 0:
                self._check_result(decrypted)
                break
            size += decrypted
        return size

    def _check_result(self, result: int) -> None:
        """Raise an error unless OpenSSL needs more input or the peer has ended the connection."""
        code = lib.SSL_get_error(self._ssl, result)
        if code == lib.SSL_ERROR_ZERO_RETURN:
            self.has_ended = True
        elif code != lib.SSL_ERROR_WANT_READ:
            try:
                self._connection._raise_ssl_error(self._ssl, result)
            except SSL.Error as error:
                self._fail(error)

    def _after_read(self, size: int) -> int:
        """Send what OpenSSL has written while it read, such as an alert."""
        self.flush()
        if self.unsent > UNSENT_BYTES_MAX:
            raise ConnectionAbortedError(f"the peer has not read {self.unsent} bytes that it requested")
        if not size and not self.has_ended:
            raise BlockingIOError
        return size

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Encrypt and send data until the socket is full; return the number of bytes that were encrypted.

        :param flags: with ``MSG_MORE``, the data may wait for the next call.
        """
        if self._is_blocked and not self.flush():
            raise BlockingIOError
        pointer, size = ffi.from_buffer(data), min(len(data), SEND_BYTES_MAX)
        position = 0
        while position < size:
            written = _ssl_write(self._ssl, pointer + position, min(size - position, CHUNK_BYTES))
            if written <= 0:
                self._check_result(written)
                raise ConnectionAbortedError("the TLS connection cannot encrypt data")
            position += written
            self.unsent += written
            if (self.unsent >= CHUNK_BYTES or not flags & MSG_MORE) and not self.flush():
                break
        return position

    def sendmsg(self, buffers: Sequence[bytes | bytearray | memoryview], _: Sequence[object], flags: int = 0) -> int:
        """Send several buffers; see ``send``."""
        total = 0
        for buffer in buffers:
            sent = self.send(buffer, MSG_MORE)
            total += sent
            if sent < len(buffer) or self._is_blocked or total >= SEND_BYTES_MAX:
                break
        if not flags & MSG_MORE:
            self.flush()
        return total

    def flush(self) -> bool:
        """Send encrypted bytes; return True if none are left."""
        size = lib.BIO_get_mem_data(self._outgoing, _data)
        if size:
            try:
                sent = self._socket.send(ffi.buffer(_data[0], size))
            except BlockingIOError:
                sent = 0
            size -= sent
            while sent:
                sent -= _bio_read(self._outgoing, _discarded, min(sent, len(_discarded)))
        self.unsent = size
        self._is_blocked = size > 0
        return not size

    # --- closing -----------------------------------------------------------------------------------------------------

    def close_notify(self) -> bool:
        """Send the close_notify alert, at most once; return True if all encrypted bytes are sent, or cannot be sent."""
        try:
            if not self._is_shut and self.error is None:
                self._is_shut = True
                self._connection.shutdown()
        except SSL.Error:
            pass  # the handshake is not complete
        try:
            return self.flush()
        except OSError:
            return True

    def _fail(self, error: SSL.Error) -> NoReturn:
        self.error = error
        self.flush()  # OpenSSL has written an alert
        raise ConnectionAbortedError(tls_reason(error)) from error
