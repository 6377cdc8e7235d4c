"""Adds quotas on Produce bytes and on event loop time to a table of handlers."""

from __future__ import annotations

from dataclasses import replace

from kreplica.cluster.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from kreplica.server.produce.batching import ProduceRun, RunHandler
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.request import Handler, Request
from kreplica.server.quotas.throttling import Throttling
from kreplica.wire.messages import (
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    STOP_REPLICA,
    UPDATE_METADATA,
    WRITE_TXN_MARKERS,
)

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
"""APIs between brokers and at the start of a connection; their time is not counted."""


class ThrottledHandlers:
    """Wraps the handlers to which a quota applies; all other handlers stay as they are."""

    def __init__(self, throttling: Throttling) -> None:
        self._quotas = throttling.quotas
        self._throttle = throttling.throttle
        self._throttle_run = throttling.throttle_run

    def table(self, table: HandlerTable) -> HandlerTable:
        """Return a copy of the table, which enforces the quotas that are currently set."""
        return {key: self._entry(entry) for key, entry in table.items()}

    def _entry(self, entry: HandlerEntry) -> HandlerEntry:
        names, key = self._quotas.names, entry.api.key
        handle, handle_run = entry.handle, entry.handle_run
        if key == PRODUCE.key and PRODUCER_BYTE_RATE in names:
            handle = self._produce(handle)
            handle_run = None if handle_run is None else self._produce_run(handle_run)
        if REQUEST_PERCENTAGE in names and key not in EXEMPT_FROM_PERCENTAGE:
            handle = self._measure(handle)
            handle_run = None if handle_run is None else self._timed_run(handle_run)
        return replace(entry, handle=handle, handle_run=handle_run)

    # --- byte rates --------------------------------------------------------------------------------------------------

    def _produce(self, handle: Handler) -> Handler:
        quotas, metrics = self._quotas, self._quotas.metrics[PRODUCER_BYTE_RATE]

        def produce(request: Request) -> None:
            usage = quotas.find(PRODUCER_BYTE_RATE, request.connection.user, request.client_id)
            if usage is not None:
                metrics.used += request.size
                throttle_s = usage.record(request.size, quotas.seconds())
                if throttle_s > 0.0:
                    self._throttle(request, PRODUCER_BYTE_RATE, throttle_s)
            handle(request)

        return produce

    def _produce_run(self, handle: RunHandler) -> RunHandler:
        quotas, metrics = self._quotas, self._quotas.metrics[PRODUCER_BYTE_RATE]

        def produce(run: ProduceRun) -> None:
            usage = quotas.find(PRODUCER_BYTE_RATE, run.connection.user, run.template.client_id)
            if usage is not None:
                size = sum(map(len, run.records))
                metrics.used += size
                throttle_s = usage.record(size, quotas.seconds())
                if throttle_s > 0.0:
                    self._throttle_run(run, PRODUCER_BYTE_RATE, throttle_s)
            handle(run)

        return produce

    # --- time of the event loop --------------------------------------------------------------------------------------

    def _measure(self, handle: Handler) -> Handler:
        quotas, metrics = self._quotas, self._quotas.metrics[REQUEST_PERCENTAGE]

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
            started_s = quotas.seconds()
            try:
                handle(request)
            finally:
                now_s = quotas.seconds()
                percents = 100.0 * (now_s - started_s)
                metrics.used += percents
                usage.record(percents, now_s)

        return timed

    def _timed_run(self, handle: RunHandler) -> RunHandler:
        quotas, metrics = self._quotas, self._quotas.metrics[REQUEST_PERCENTAGE]

        def timed(run: ProduceRun) -> None:
            usage = quotas.find(REQUEST_PERCENTAGE, run.connection.user, run.template.client_id)
            if usage is None:
                handle(run)
                return
            throttle_s = min(usage.record(0.0, quotas.seconds()), quotas.request_window_s)
            if throttle_s > 0.0:
                self._throttle_run(run, REQUEST_PERCENTAGE, throttle_s)
            started_s = quotas.seconds()
            try:
                handle(run)
            finally:
                now_s = quotas.seconds()
                percents = 100.0 * (now_s - started_s)
                metrics.used += percents
                usage.record(percents, now_s)

        return timed
