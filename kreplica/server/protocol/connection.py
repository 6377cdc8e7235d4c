"""Client connection without I/O: orders requests and responses, and bounds both.

A ``Transport`` (``epoll_transport``, ``tls_transport`` or ``twisted_transport``) delivers frames and sends buffers.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from kreplica.interfaces.authorization import ANONYMOUS
from kreplica.runtime.slices import Slices
from kreplica.server.protocol.client_load import AddressLoad, ClientLoads
from kreplica.server.protocol.client_names import NO_NAMES
from kreplica.server.protocol.connection_parts import OutstandingRequest, Transport
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.outgoing_buffers import Piece, memory_size

log = Logger()


class Connection:
    """Connection of one client, from accept to close.

    :ivar listener: name of the listener that accepted the connection.
    :ivar peer: host and port of the client, for logs.
    :ivar user: principal of the client, such as ``User:alice``; ``User:ANONYMOUS`` until it is authenticated.
    :ivar frame_received: handles frames; set by the owner of the connection.
    :ivar frame_bytes_max: maximum size of a frame; larger after authentication.
    :ivar sasl: authentication of the client; None if its listener does not use SASL.
    :ivar is_control: the connection carries commands of the controller or fetches of a follower.
    :ivar closed: no further request is dispatched and no response is sent.
    :ivar held: later requests must wait until the outcome of an earlier one is known.
    :ivar paused: the connection is held or has reached a bound; frames stop until ``Transport.resume_reading``.
    :ivar keeps_frame: the last frame is still being parsed; its memory must not change until ``release_frame``.
    :ivar last_active_s: reactor time of the last byte read or written; set by the transport.
    :ivar opened_s: reactor time at which the connection was accepted.
    :ivar names: the client's names, for lists of connections.
    """

    __slots__ = (
        "_bounds",
        "_closed_callbacks",
        "_flush_scope",
        "_flushing",
        "_held_bytes",
        "_load",
        "_metrics",
        "_out",
        "_postponed",
        "_request_bytes",
        "_requests",
        "_response_bytes",
        "_stopping",
        "_suspensions",
        "_transport",
        "closed",
        "frame_bytes_max",
        "frame_received",
        "held",
        "is_control",
        "keeps_frame",
        "last_active_s",
        "listener",
        "names",
        "opened_s",
        "paused",
        "peer",
        "sasl",
        "seconds",
        "user",
    )

    def __init__(
        self,
        listener: str,
        peer: str,
        bounds: Bounds,
        flush_scope: FlushScope,
        metrics: ServerMetrics,
        seconds: Callable[[], float],
        load: AddressLoad | None = None,
    ) -> None:
        self.listener = listener
        self.peer = peer
        self.user = ANONYMOUS
        self.frame_received: Callable[[Connection, memoryview], object]
        self.frame_bytes_max = bounds.request_bytes_max
        self.sasl: object | None = None
        self.is_control = False
        self.closed = False
        self.held = False
        self.paused = False
        self.last_active_s = self.opened_s = seconds()
        self.names = NO_NAMES
        self.seconds = seconds
        self._bounds = bounds
        self._flush_scope = flush_scope
        self._metrics = metrics
        self._transport: Transport
        # A list, since requests are few and an empty deque takes 600 bytes on each idle connection.
        self._requests: list[OutstandingRequest] = []
        self._request_bytes = 0
        self._response_bytes = 0
        self._held_bytes = 0
        self._load = load or ClientLoads(bounds, metrics, seconds).opened(peer)
        self._out: list[Piece] | None = None
        self._flushing = False
        self._stopping = False
        self._postponed: Callable[[], object] | None = None
        self._suspensions = 0
        self.keeps_frame = False
        self._closed_callbacks: tuple[Callable[[], object], ...] = ()

    def __repr__(self) -> str:
        first = f": {self._requests[0].description}" if self._requests else ""
        return f"<Connection {self.peer} on {self.listener}, {len(self._requests)} outstanding{first}>"

    @property
    def host(self) -> str:
        """Address of the client without its port."""
        return self.peer.rpartition(":")[0].strip("[]")

    @property
    def transport(self) -> Transport:
        """The transport, for the counters of its socket."""
        return self._transport

    @property
    def outstanding(self) -> int:
        """Number of requests whose responses are not ready, or wait for earlier responses."""
        return len(self._requests)

    @property
    def is_settled(self) -> bool:
        """True if the response to every request has been sent."""
        return not self._requests and not self._response_bytes

    def mark_control(self) -> None:
        """Serve this connection before data connections (KIP-291)."""
        if not self.is_control and not self.closed:
            self.is_control = True
            self._transport.mark_control()

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call back once when the connection closes; immediately if it has closed."""
        if self.closed:
            callback()
        else:
            self._closed_callbacks += (callback,)

    def stop(self) -> None:
        """Stop accepting requests, and close after the responses to pending ones are sent."""
        if not self.closed and not self._stopping:
            self._stopping = True
            self._pause()
            self._close_if_settled()

    def abort(self, reason: str) -> None:
        """Abandon all requests, send the responses that are ready, and close.

        :param reason: for the log.
        """
        if not self.closed:
            log.info("closing the connection from {peer}: {reason}", peer=self.peer, reason=reason)
            self._send()
            self._transport.close()
            self._end()

    def drop(self, reason: str) -> None:
        """Close at once and discard unsent responses.

        :param reason: for the log.
        """
        if not self.closed:
            log.debug("dropping the connection from {peer}: {reason}", peer=self.peer, reason=reason)
            self._end()
        self._transport.abort()

    def hold(self) -> None:
        """Handle no other request until ``release``; the next frame may be passed to ``postpone``."""
        self.held = True
        self._pause()

    def postpone(self, handle: Callable[[], object]) -> None:
        """Keep one frame that arrived after the connection was held; ``release`` handles it before any other.

        :param handle: handles a copy of the frame.
        """
        self._postponed = handle

    def release(self, first: Callable[[], object]) -> None:
        """Handle requests again.

        :param first: finishes the request for which the connection was held; does not raise.
        """
        self.held = False
        handle, self._postponed = self._postponed, None
        with self._flush_scope:
            first()
            if handle is not None and not self.closed and not self._stopping:
                handle()
        if not self.closed:
            self._resume_if_possible()

    # --- for the dispatcher and its requests ------------------------------------------------------------------------

    @property
    def slices(self) -> Slices:
        """Scheduler of work that would occupy the event loop for too long."""
        return self._flush_scope.slices

    def suspend(self) -> None:
        """Stop reading while a request is processed in slices; each call needs a ``resume``."""
        self._suspensions += 1
        if not self.closed:
            self._pause()

    def resume(self) -> None:
        """Resume reading if nothing else prevents it."""
        self._suspensions -= 1
        if self.paused and not self.closed:
            self._resume_if_possible()

    def release_frame(self) -> None:
        """Release the frame that was kept for parsing."""
        if self.keeps_frame:
            self.keeps_frame = False
            self._transport.release_frame()

    def begin(self, request: OutstandingRequest) -> None:
        """Add a request to the response order."""
        self._requests.append(request)
        self._request_bytes += request.size
        bounds, load = self._bounds, self._load
        load.requests += 1
        if (
            len(self._requests) >= bounds.requests_outstanding_max
            or self._request_bytes >= bounds.request_bytes_outstanding_max
            or (load.requests >= load.check_at and load.check() and not self.is_control)
        ):
            self._pause()

    def response_ready(self, request: OutstandingRequest) -> None:
        """Send the response of a request, and later ones that waited for it, if no earlier one is pending."""
        self._response_bytes += request.response_bytes
        requests = self._requests
        if requests[0] is request:
            out, load = self._out, self._load
            if out is None:
                out = self._out = []
            while requests and requests[0].is_complete:
                done = requests.pop(0)
                self._request_bytes -= done.size
                load.requests -= 1
                if done.pieces is not None:
                    out += done.pieces
            if load.is_full and load.requests <= load.relax_at:
                load.relax()
        if not self._flushing:
            self._flushing = True
            self._flush_scope.add(self)
        if self._response_bytes >= self._bounds.response_bytes_outstanding_max:
            self._pause()

    def send_at_once(self, frames: bytes) -> None:
        """Send responses of requests that were not added with ``begin``; no earlier response may be pending."""
        if self.closed:
            return
        self._response_bytes += len(frames)
        if self._out is None:
            self._out = [frames]
        else:
            self._out.append(frames)
        if not self._flushing:
            self._flushing = True
            self._flush_scope.add(self)
        if self._response_bytes >= self._bounds.response_bytes_outstanding_max:
            self._pause()

    # --- for the flush scope and the transport -----------------------------------------------------------------------

    def attach(self, transport: Transport) -> None:
        """Set the transport; must be called before any other method."""
        self._transport = transport

    def flush(self) -> None:
        """Send the responses that are ready; called at the end of a flush scope."""
        self._flushing = False
        if not self.closed:
            self._send()
            if self._response_bytes or self._held_bytes:
                self._count_held(was_read=False)
            self._resume_if_possible()
            self._close_if_settled()

    def sent(self, size: int) -> None:
        """Record response bytes written to the socket; the transport calls this last, after its own work."""
        self._response_bytes -= size
        if self._held_bytes and not self.closed:
            self._count_held(was_read=size > 0)
        if self.paused and not self.closed:
            self._resume_if_possible()

    def lost(self) -> None:
        """Abandon pending requests, since the transport has closed."""
        if not self.closed:
            self._end()

    # --- internal ----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        if self._out:
            out, self._out = self._out, None
            self._response_bytes -= self._transport.send(out)

    def _count_held(self, *, was_read: bool) -> None:
        """Count the responses in memory, including those that wait for an earlier one."""
        held_bytes = self._transport.held_bytes
        for request in self._requests:
            if request.is_complete and request.pieces is not None:
                held_bytes += memory_size(request.pieces)
        self._held_bytes = held_bytes
        self._load.set_unread_bytes(self, held_bytes, was_read=was_read)

    def _pause(self) -> None:
        if not self.paused:
            self.paused = True
            self._metrics.pauses += 1
            self._transport.pause_reading()

    def _resume_if_possible(self) -> None:
        bounds = self._bounds
        if (
            self.paused
            and not self.closed
            and not self.held
            and not self._stopping
            and not self._suspensions
            and (not self._requests or not self._load.is_full or self.is_control)
            and len(self._requests) <= bounds.requests_outstanding_max // 2
            and self._request_bytes <= bounds.request_bytes_outstanding_max // 2
            and self._response_bytes <= bounds.response_bytes_outstanding_max // 2
        ):
            self.paused = False
            self._transport.resume_reading()

    def _close_if_settled(self) -> None:
        if self._stopping and not self.closed and not self._requests:
            self._transport.close()

    def _end(self) -> None:
        self.closed = self.paused = True
        callbacks = [callback for request in self._requests for callback in request.abandon()]
        callbacks += self._closed_callbacks
        self._load.closed(self, len(self._requests))
        self._requests.clear()
        self._closed_callbacks = ()
        self._out = None
        self._postponed = None
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.failure("{peer}: a callback failed when the connection closed", peer=self.peer)
