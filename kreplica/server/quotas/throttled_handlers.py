"""Adds quotas on byte rates and on the time of the event loop to a table of handlers.

A client that exceeds its quota gets its response with the throttle time, and its connection is not read for that time
(KIP-219).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kreplica.cluster.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from kreplica.server.produce.batching import ProduceRun, RunHandler
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.request import Handler, Request
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.muted_connections import MutedConnections
from kreplica.wire.messages import (
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    FETCH,
    LEADER_AND_ISR,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    STOP_REPLICA,
    UPDATE_METADATA,
    WRITE_TXN_MARKERS,
)

Row = dict[str, Any]

EXEMPT_FROM_PERCENTAGE = frozenset(
    api.key
    for api in (
        API_VERSIONS,
        CONTROLLED_SHUTDOWN,
        LEADER_AND_ISR,
        SASL_AUTHENTICATE,
        SASL_HANDSHAKE,
        STOP_REPLICA,
        UPDATE_METADATA,
        WRITE_TXN_MARKERS,
    )
)
"""APIs of brokers and of the begin of connections, whose time does not count."""


class ThrottledHandlers:
    """Wraps handlers; only those that a quota can concern cost anything."""

    def __init__(self, quotas: ClientQuotas, muted: MutedConnections) -> None:
        self._quotas = quotas
        self._muted = muted

    def table(self, table: HandlerTable) -> HandlerTable:
        """Return the same table, with the quotas that are set now."""
        return {key: self._entry(entry) for key, entry in table.items()}

    def _entry(self, entry: HandlerEntry) -> HandlerEntry:
        names, key = self._quotas.names, entry.api.key
        handle, handle_run = entry.handle, entry.handle_run
        if key == PRODUCE.key and PRODUCER_BYTE_RATE in names:
            handle = self._produce(handle)
            handle_run = None if handle_run is None else self._produce_run(handle_run)
        if key == FETCH.key and CONSUMER_BYTE_RATE in names:
            handle = self._fetch(handle)
        if REQUEST_PERCENTAGE in names and key not in EXEMPT_FROM_PERCENTAGE:
            handle = self._timed(handle)
            handle_run = None if handle_run is None else self._timed_run(handle_run)
        return replace(entry, handle=handle, handle_run=handle_run)

    # --- byte rates --------------------------------------------------------------------------------------------------

    def _produce(self, handle: Handler) -> Handler:
        quotas = self._quotas

        def produce(request: Request) -> None:
            usage = quotas.find(PRODUCER_BYTE_RATE, request.connection.user, request.client_id)
            if usage is not None:
                throttle_s = usage.record(request.size, quotas.seconds())
                if throttle_s > 0.0:
                    self._throttle(request, PRODUCER_BYTE_RATE, throttle_s)
            handle(request)

        return produce

    def _produce_run(self, handle: RunHandler) -> RunHandler:
        quotas = self._quotas

        def produce(run: ProduceRun) -> None:
            usage = quotas.find(PRODUCER_BYTE_RATE, run.connection.user, run.template.client_id)
            if usage is not None:
                throttle_s = usage.record(sum(map(len, run.records)), quotas.seconds())
                if throttle_s > 0.0:
                    self._throttle_run(run, PRODUCER_BYTE_RATE, throttle_s)
            handle(run)

        return produce

    def _fetch(self, handle: Handler) -> Handler:
        quotas = self._quotas

        def fetch(request: Request) -> None:
            connection = request.connection
            if not connection.is_control:
                usage = quotas.find(CONSUMER_BYTE_RATE, connection.user, request.client_id)
                if usage is not None:

                    def amend(body: Row) -> Row:
                        if connection.is_control:
                            return body  # the first fetch of a follower
                        throttle_s = usage.record(_records_size(body), quotas.seconds())
                        if throttle_s <= 0.0:
                            return body
                        quotas.metrics[CONSUMER_BYTE_RATE].count(throttle_s)
                        self._muted.mute(connection, throttle_s)
                        return _with_throttle_time(body, throttle_s)

                    request.amend_response(amend)
            handle(request)

        return fetch

    # --- time of the event loop --------------------------------------------------------------------------------------

    def _timed(self, handle: Handler) -> Handler:
        quotas = self._quotas

        def timed(request: Request) -> None:
            connection = request.connection
            usage = None
            if not connection.is_control:
                usage = quotas.find(REQUEST_PERCENTAGE, connection.user, request.client_id)
            if usage is None:
                handle(request)
                return
            # The time of this request is not known before it is handled: the client pauses for earlier ones.
            throttle_s = min(usage.record(0.0, quotas.seconds()), quotas.request_window_s)
            if throttle_s > 0.0:
                self._throttle(request, REQUEST_PERCENTAGE, throttle_s)
            began_s = quotas.seconds()
            try:
                handle(request)
            finally:
                now_s = quotas.seconds()
                usage.record(100.0 * (now_s - began_s), now_s)

        return timed

    def _timed_run(self, handle: RunHandler) -> RunHandler:
        quotas = self._quotas

        def timed(run: ProduceRun) -> None:
            usage = quotas.find(REQUEST_PERCENTAGE, run.connection.user, run.template.client_id)
            if usage is None:
                handle(run)
                return
            throttle_s = min(usage.record(0.0, quotas.seconds()), quotas.request_window_s)
            if throttle_s > 0.0:
                self._throttle_run(run, REQUEST_PERCENTAGE, throttle_s)
            began_s = quotas.seconds()
            try:
                handle(run)
            finally:
                now_s = quotas.seconds()
                usage.record(100.0 * (now_s - began_s), now_s)

        return timed

    # --- throttling --------------------------------------------------------------------------------------------------

    def _throttle(self, request: Request, name: str, throttle_s: float) -> None:
        self._quotas.metrics[name].count(throttle_s)
        request.amend_response(lambda body: _with_throttle_time(body, throttle_s))
        self._muted.mute(request.connection, throttle_s)

    def _throttle_run(self, run: ProduceRun, name: str, throttle_s: float) -> None:
        self._quotas.metrics[name].count(throttle_s)
        run.amend_responses(lambda body: _with_throttle_time(body, throttle_s))
        self._muted.mute(run.connection, throttle_s)


def _with_throttle_time(body: Row, throttle_s: float) -> Row:
    """Return a response body with a throttle time, the longest if several quotas are exceeded."""
    return {**body, "throttle_time_ms": max(int(throttle_s * 1000) + 1, body.get("throttle_time_ms", 0))}


def _records_size(body: Row) -> int:
    size = 0
    for topic in body["responses"]:
        for row in topic["partitions"]:
            records = row["records"]
            if records:
                size += records.size if hasattr(records, "size") else len(records)
    return size
