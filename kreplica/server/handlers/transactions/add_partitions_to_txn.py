"""AddPartitionsToTxn (key 24): adds partitions to a transaction, or verifies them for a partition leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kreplica.coordination import ClusterView
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.handlers.transactions.transaction_codes import fenced_code
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.transactions import Identity, TransactionCoordinator

PRODUCER_FENCED_VERSION_MIN = 2

BATCHED_FROM = 4
"""First version with several transactions per request, sent by brokers (KIP-890)."""

ABORTABLE_FROM = 5
"""First version with TRANSACTION_ABORTABLE for a partition outside the transaction, formerly INVALID_TXN_STATE."""

STEP_TRANSACTIONS = 20
"""Number of transactions of one request that are handled in one step."""

Codes = Mapping[TopicPartition, ErrorCode]
Row = dict[str, Any]


class AddPartitionsToTxn:
    """Adds all partitions of a request to the transaction, or none of them."""

    def __init__(self, coordinator: TransactionCoordinator, view: ClusterView) -> None:
        self._coordinator = coordinator
        self._view = view

    def __call__(self, request: Request) -> None:
        if request.version < BATCHED_FROM:
            body = request.body
            transaction = {
                "transactional_id": body["v3_and_below_transactional_id"],
                "producer_id": body["v3_and_below_producer_id"],
                "producer_epoch": body["v3_and_below_producer_epoch"],
                "topics": body["v3_and_below_topics"],
            }
            steps: Steps[Row | None] = self._serve(
                transaction, lambda codes: respond_in_slices(request, _single(codes, request.version))
            )
        else:
            steps = _Batch(request).serve(self._serve)
        respond_in_slices(request, steps)

    def _serve(self, requested: Row, respond: Callable[[Codes], None]) -> Steps[None]:
        """Read the partitions in slices, then add all of them in one step."""
        keys: dict[TopicPartition, None] = {}
        unknown = []
        for topic in requested["topics"]:
            for number in topic["partitions"]:
                key = TopicPartition(topic["name"], number)
                keys[key] = None
                if not self._is_known(key):
                    unknown.append(key)
                if len(keys) % STEP_ROWS == 0:
                    yield
        transactional_id = requested["transactional_id"]
        claimed = Identity(requested["producer_id"], requested["producer_epoch"])
        if not keys:
            respond({})
        elif requested.get("verify_only", False):
            respond(self._coordinator.verify(transactional_id, claimed, list(keys)))
        elif unknown:
            codes = dict.fromkeys(keys, ErrorCode.OPERATION_NOT_ATTEMPTED)
            respond(codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            self._coordinator.add(
                transactional_id, claimed, list(keys), lambda code: respond(dict.fromkeys(keys, code))
            )

    def _is_known(self, key: TopicPartition) -> bool:
        count = self._view.partition_count(key.topic)
        return count is not None and 0 <= key.partition < count


class _Batch:
    """A request of a broker; the response is sent when all its transactions are handled."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._requested: list[Row] = request.body["transactions"]
        self._codes: list[Codes | None] = [None] * len(self._requested)
        self._pending_count = len(self._requested)

    def serve(self, serve: Callable[[Row, Callable[[Codes], None]], Steps[None]]) -> Steps[Row | None]:
        for index, requested in enumerate(self._requested):
            yield from serve(requested, partial(self._add_result, index))
            if index % STEP_TRANSACTIONS == STEP_TRANSACTIONS - 1:
                yield
        return None if self._requested else {"error_code": 0, "results_by_transaction": []}

    def _add_result(self, index: int, codes: Codes) -> None:
        self._codes[index] = codes
        self._pending_count -= 1
        if not self._pending_count:
            respond_in_slices(self._request, self._response())

    def _response(self) -> Steps[Row]:
        rows = []
        for requested, codes in zip(self._requested, self._codes, strict=True):
            topics = yield from _topics(codes or {}, self._request.version)
            rows.append({"transactional_id": requested["transactional_id"], "topic_results": topics})
            if len(rows) % STEP_TRANSACTIONS == 0:
                yield
        return {"error_code": 0, "results_by_transaction": rows}


def _single(codes: Codes, version: int) -> Steps[Row]:
    return {"results_by_topic_v3_and_below": (yield from _topics(codes, version))}


def _topics(codes: Codes, version: int) -> Steps[list[Row]]:
    rows: dict[str, list[Row]] = {}
    for number, (key, code) in enumerate(codes.items(), 1):
        row = {"partition_index": key.partition, "partition_error_code": _code_for_version(code, version)}
        rows.setdefault(key.topic, []).append(row)
        if number % STEP_ROWS == 0:
            yield
    return [{"name": topic, "results_by_partition": partitions} for topic, partitions in rows.items()]


def _code_for_version(code: ErrorCode, version: int) -> int:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return int(ErrorCode.INVALID_TXN_STATE)
    return fenced_code(code, is_known=version >= PRODUCER_FENCED_VERSION_MIN)
