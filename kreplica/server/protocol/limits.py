"""Limits of a server: frames, requests and bytes."""

from __future__ import annotations

from dataclasses import dataclass

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a broker's connections, of their client addresses and of the broker.

    :param request_bytes_max: maximum frame size, ``socket.request.max.bytes``; a larger frame closes its connection.
    :param request_bytes_max_without_records: maximum frame size of APIs that carry no records and are not the
        controller's commands, ``kreplica.request.without.records.max.bytes``; a larger frame closes its
        connection.
    :param parsed_bytes_max: estimated memory of one such request once it is parsed,
        ``kreplica.request.parsed.max.bytes``.
    :param requests_outstanding_max: pending requests of one connection; at the limit, the connection is not read
        until half of them have a response.
    :param request_bytes_outstanding_max: maximum bytes of the pending requests of one connection, so that they
        fit into the CPU cache. A single larger request is accepted.
    :param response_bytes_outstanding_max: bytes of responses that the client of one connection has not read; a single
        larger response is sent.
    :param address_requests_outstanding_max: pending requests of all connections of one client address; at the limit,
        each of these connections may have only one until half of them have a response.
    :param broker_requests_outstanding_max: pending requests of all connections; at the limit, each address is
        limited to an equal share.
    :param address_response_bytes_max: bytes in memory of responses that clients of one address have not read; above
        it, connections whose clients read nothing for ``partial_stall_s`` are closed, and above twice the limit
        other connections too, the largest first.
    :param broker_response_bytes_max: the same limit for all addresses together; connections of the address with the
        most bytes are closed first.
    :param partial_bytes_max: bytes of incomplete frames of all connections, ``queued.max.request.bytes``; a quarter is
        reserved for frames of up to 1 MiB, which never wait for larger ones.
    :param partial_stall_s: period over which the rate of an incomplete frame is measured.
    :param partial_rate_min: bytes per second below which a frame is evicted when other frames need its memory.
    :param accept_backlog: connections that wait to be accepted, ``socket.listen.backlog.size``; more than Kafka's 50,
        because all clients reconnect at once after a restart.
    :param idle_s: ``connections.max.idle.ms`` in seconds: a connection without traffic for this time is closed.
    :param send_buffer_bytes: ``socket.send.buffer.bytes``; -1 lets the operating system choose and adapt it.
    :param receive_buffer_bytes: ``socket.receive.buffer.bytes``; -1 lets the operating system choose and adapt it.
    """

    request_bytes_max: int = 104_857_600
    request_bytes_max_without_records: int = 16 * 1024 * 1024
    parsed_bytes_max: int = 20_000_000
    requests_outstanding_max: int = 512
    request_bytes_outstanding_max: int = 8 * 1024 * 1024
    response_bytes_outstanding_max: int = 4 * 1024 * 1024
    address_requests_outstanding_max: int = 30_000
    broker_requests_outstanding_max: int = 100_000
    address_response_bytes_max: int = 256 * 1024 * 1024
    broker_response_bytes_max: int = 1024 * 1024 * 1024
    partial_bytes_max: int = 512 * 1024 * 1024
    partial_stall_s: float = 5.0
    partial_rate_min: int = 16_384
    accept_backlog: int = 1024
    idle_s: float = 600.0
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
