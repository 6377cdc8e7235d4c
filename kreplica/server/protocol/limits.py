"""Limits of a server: connections, frames, requests and bytes."""

from __future__ import annotations

from dataclasses import dataclass

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a broker's connections.  Only the connection that reaches a limit waits or is closed.

    :param request_bytes_max: the longest frame, ``socket.request.max.bytes``; a longer one closes its connection.
    :param request_bytes_max_without_records: the longest frame of APIs that carry no records and are not the
        controller's commands, ``kreplica.request.without.records.max.bytes``; a longer one closes its connection.
    :param parsed_bytes_max: estimated memory of one such request once it is parsed,
        ``kreplica.request.parsed.max.bytes``.
    :param requests_outstanding_max: requests of one connection that are not answered yet; beyond it the connection is
        not read until half of them are answered.
    :param request_bytes_outstanding_max: bytes of those requests (large ones in flight together only evict each other
        from the processor's cache); a single larger request is taken.
    :param answer_bytes_outstanding_max: bytes of one connection's answers that its client has not taken yet; a single
        larger answer is sent.
    :param address_requests_outstanding_max: unanswered requests of all connections of one client address; beyond it,
        each of these connections has only one at a time until half of them are answered.
    :param broker_requests_outstanding_max: unanswered requests of all connections; beyond it, addresses with more than
        their share of it are limited to the share.
    :param address_answer_bytes_max: bytes in memory of responses that clients of one address have not read; beyond it,
        connections whose clients read nothing for ``partial_stall_s`` are closed, and beyond twice the limit others,
        the largest first.
    :param broker_answer_bytes_max: the same of all addresses; connections of the address that holds most come first.
    :param partial_bytes_max: bytes of all connections together that belong to frames not complete yet,
        ``queued.max.request.bytes``; a quarter of it is for frames of up to 1 MiB, which never wait for larger ones.
    :param partial_stall_s: for how long a frame's rate is measured before it can count as slow.
    :param partial_rate_min: bytes per second below which a frame is evicted when others need its memory.
    :param connections_max: ``max.connections``; further ones are closed when they are accepted.
    :param connections_per_host_max: ``max.connections.per.ip``.
    :param accept_backlog: connections that the operating system completes ahead, ``socket.listen.backlog.size``:
        clients come back all at once after a restart, so it is more than Kafka's 50.
    :param idle_s: ``connections.max.idle.ms`` in seconds: a connection without traffic for this time is closed.
    :param send_buffer_bytes: ``socket.send.buffer.bytes``; -1 leaves it to the operating system, which adapts it.
    :param receive_buffer_bytes: ``socket.receive.buffer.bytes``; -1 likewise.
    """

    request_bytes_max: int = 104_857_600
    request_bytes_max_without_records: int = 16 * 1024 * 1024
    parsed_bytes_max: int = 20_000_000
    requests_outstanding_max: int = 512
    request_bytes_outstanding_max: int = 8 * 1024 * 1024
    answer_bytes_outstanding_max: int = 4 * 1024 * 1024
    address_requests_outstanding_max: int = 30_000
    broker_requests_outstanding_max: int = 100_000
    address_answer_bytes_max: int = 256 * 1024 * 1024
    broker_answer_bytes_max: int = 1024 * 1024 * 1024
    partial_bytes_max: int = 512 * 1024 * 1024
    partial_stall_s: float = 5.0
    partial_rate_min: int = 16_384
    connections_max: int = UNLIMITED
    connections_per_host_max: int = UNLIMITED
    accept_backlog: int = 1024
    idle_s: float = 600.0
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
