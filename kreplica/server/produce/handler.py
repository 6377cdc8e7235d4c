"""Produce (key 0): append batches, and respond at once or when the requested replicas have them.

``Produce`` handles one request, or a run of similar requests of one connection.  Both paths validate the
batches whose records have to be read, append all batches, record the outcomes in ``ProduceResults``, and end in
``finish``.  Two kinds of requests are appended in parts: large ones (``sliced_produce``), and transactional ones
(``transactional_produce``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.disk import Buffer
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.produce.batching import ProduceRun
from kreplica.server.produce.delayed_produce import (
    ALL_IN_SYNC,
    LEADER_ONLY,
    NO_RESPONSE,
    DelayedProduce,
    is_reached,
)
from kreplica.server.produce.interception import Interception
from kreplica.server.produce.record_checks import (
    PACKED_SIZE_MAX,
    BatchValidation,
    Unvalidated,
    must_be_read,
    to_validate,
)
from kreplica.server.produce.request_templates import ProduceTemplate
from kreplica.server.produce.results import ProduceResults, find_partition, response_body
from kreplica.server.produce.sliced_produce import PARTITIONS_AT_ONCE, LargeProduce
from kreplica.server.produce.transactional_produce import TransactionalProduces
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.principals import principal_of
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import LeaderHints, respond_in_slices
from kreplica.storage.log.results import AppendResult, Outcome
from kreplica.transactions.admission import Admission
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK

FORMAT_2_FROM = 3
"""First version of Produce in which all batches have format 2."""

ACKS = (ALL_IN_SYNC, NO_RESPONSE, LEADER_ONLY)

Row = dict[str, Any]

_new_tuple: Any = tuple.__new__


class Produce:
    """Handler of Produce; batches are appended even if those of other partitions fail.

    :param metadata: source of the current leader in error responses (KIP-951).
    :param validation: validates batches whose records have to be read.
    :param interception: changes or rejects batches; None without interceptors.
    """

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        wall_clock_ms: Callable[[], int],
        admission: Admission,
        validation: BatchValidation,
        interception: Interception | None = None,
    ) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._metadata = metadata
        self._wall_clock_ms = wall_clock_ms
        self.transactional = TransactionalProduces(partitions, admission, wall_clock_ms, interception)
        self._validation = validation
        self._interception = interception

    # --- one request -------------------------------------------------------------------------------------------------

    def __call__(self, request: Request, *, validated: bool = False) -> None:
        body = request.body
        count = 0
        if not validated:
            must_inspect = request.size > PACKED_SIZE_MAX or "transactional_id" not in body  # before version 3
            try:
                for topic in body["topic_data"]:
                    for data in topic["partition_data"]:
                        count += 1
                        if data["records"][ATTRIBUTES_POSITION] & CODEC_MASK:
                            must_inspect = True
            except (IndexError, TypeError):  # no records, or too few bytes
                must_inspect = True
                count = sum([len(topic["partition_data"]) for topic in body["topic_data"]])
            if count > PARTITIONS_AT_ONCE or request.is_sliced:
                rejection = None if body["acks"] in ACKS else invalid_acks_error(body["acks"])
                LargeProduce(self, request, rejection).begin()
                return
            if must_inspect and self._validate_later(request):
                return
        acks = body["acks"]
        timeout_s = body["timeout_ms"] / 1000
        rejection = None if acks in ACKS else invalid_acks_error(acks)
        if rejection is None and body.get("transactional_id") is not None:
            self.transactional.begin(request, lambda results: self.finish(request, results, timeout_s))
            request.body = {}  # releases the buffer: deferred batches were copied
            return
        results = ProduceResults(acks)
        results.responses = self.append_topics(request, body["topic_data"], results, rejection)
        self.finish(request, results, timeout_s)

    def _validate_later(self, request: Request) -> bool:
        """Validate the batches whose records have to be read.

        :return: true if validation is deferred; the request is handled again when it is complete.
        """
        body = request.body
        batches = to_validate(
            self._partitions,
            body["topic_data"],
            is_large=request.size > PACKED_SIZE_MAX,
            formats_before_2=request.version < FORMAT_2_FROM,
        )
        if not batches or self._validation.validate_now(batches):
            return False
        for topic in body["topic_data"]:
            for data in topic["partition_data"]:
                if type(data["records"]) is memoryview:
                    data["records"] = bytearray(data["records"])
        self._validation.validate_later(
            request.connection, batches, lambda: self(request, validated=True), needed=body["acks"] != NO_RESPONSE
        )
        return True

    def find_unvalidated(self, request: Request, topics: Sequence[Row]) -> list[Unvalidated]:
        """Return the batches of these topics that must be validated later; empty if all were validated at once."""
        before_2 = request.version < FORMAT_2_FROM
        batches = to_validate(self._partitions, topics, is_large=True, formats_before_2=before_2)
        return [] if self._validation.validate_now(batches) else batches

    def validate_later(self, request: Request, batches: list[Unvalidated], done: Callable[[], None]) -> None:
        """Validate batches off the reactor; the caller has copied them."""
        needed = request.body["acks"] != NO_RESPONSE
        self._validation.validate_later(request.connection, batches, done, needed=needed)

    def append_topics(
        self, request: Request, topics: Sequence[Row], results: ProduceResults, rejection: KafkaError | None
    ) -> list[Row]:
        """Append the batches of these topics of a request that is not transactional.

        :param results: records the outcomes.
        :param rejection: error of every batch, in which case nothing is appended; else None.
        :return: response rows by topic.
        """
        now_ms = self._wall_clock_ms()
        version, all_in_sync = request.version, results.acks == ALL_IN_SYNC
        interception = self._interception
        responses = []
        for topic in topics:
            rows = []
            for data in topic["partition_data"]:
                key = TopicPartition(topic["name"], data["index"])
                records = data["records"]
                partition: Partition | None = None
                try:
                    if rejection is not None:
                        raise rejection
                    partition = find_partition(self._partitions, key, records, version, now_ms)
                    if interception is None:
                        (outcome,) = partition.append((records,), now_ms, all_in_sync=all_in_sync)
                    else:
                        principal = principal_of(request.connection, request.client_id)
                        (outcome,) = interception.append(
                            partition, (records,), principal, now_ms, all_in_sync=all_in_sync
                        )
                except KafkaError as error:
                    outcome = error
                rows.append(results.row(key.partition, partition, outcome))
            responses.append({"name": topic["name"], "partition_responses": rows})
        return responses

    # --- a run of requests -------------------------------------------------------------------------------------------

    def handle_run(self, run: ProduceRun) -> None:
        """Append the batches of a run; respond from a template if all of them can be acknowledged."""
        template, records = run.template, run.records
        key: TopicPartition = _new_tuple(TopicPartition, (template.topic, run.partition))
        partition = self._partitions.get(key)
        if partition is not None and (run.codecs or partition.log.config.reads_all_records):
            batches = [
                Unvalidated(partition.log.config, records, index)
                for index, batch in enumerate(records)
                if must_be_read(partition, batch)
            ]
            if not self._validation.validate_now(batches):
                requests = run.requests()
                records[:] = [bytearray(batch) if type(batch) is memoryview else batch for batch in records]
                self._validation.validate_later(
                    run.connection, batches, lambda: self._append_requests(template, key, requests, records)
                )
                return
        outcomes = self._append_run(partition, template, key, records, run.connection)
        if partition is not None and run.can_respond_at_once and _all_reached(outcomes, partition, template.acks):
            start_offset = partition.log.log_start_offset
            run.respond(template.responses(run.partition, run.correlation_ids, outcomes, start_offset))
        else:
            self._finish_each(run.requests(), template, key, partition, outcomes)

    def _append_requests(
        self, template: ProduceTemplate, key: TopicPartition, requests: Sequence[Request], records: Sequence[Buffer]
    ) -> None:
        """Append batches that were validated off the reactor; this broker may no longer lead the partition."""
        partition = self._partitions.get(key)
        outcomes = self._append_run(partition, template, key, records, requests[0].connection)
        self._finish_each(requests, template, key, partition, outcomes)

    def _append_run(
        self,
        partition: Partition | None,
        template: ProduceTemplate,
        key: TopicPartition,
        records: Sequence[Buffer],
        connection: Connection,
    ) -> Sequence[Outcome]:
        now_ms = self._wall_clock_ms()
        if partition is None:
            return [self._partitions.reject(key, batch, now_ms) for batch in records]
        all_in_sync = template.acks == ALL_IN_SYNC
        if self._interception is None:
            return partition.append(records, now_ms, all_in_sync=all_in_sync)
        principal = principal_of(connection, template.client_id)
        return self._interception.append(partition, records, principal, now_ms, all_in_sync=all_in_sync)

    def _finish_each(
        self,
        requests: Sequence[Request],
        template: ProduceTemplate,
        key: TopicPartition,
        partition: Partition | None,
        outcomes: Sequence[Outcome],
    ) -> None:
        """Respond to each request of a run, now or when its batch may be acknowledged."""
        topic, index = key
        for request, outcome in zip(requests, outcomes, strict=True):
            results = ProduceResults(template.acks)
            row = results.row(index, partition, outcome)
            results.responses.append({"name": topic, "partition_responses": [row]})
            self.finish(request, results, template.timeout_ms / 1000)

    # --- responses ---------------------------------------------------------------------------------------------------

    def finish(self, request: Request, results: ProduceResults, timeout_s: float) -> None:
        """Send the response as soon as all appended batches may be acknowledged."""
        failed = results.failed
        if results.acks == NO_RESPONSE:
            # With acks=0 there is no response: closing the connection is how Kafka's clients notice an error.
            if failed is not None:
                request.abort(f"produce with acks=0 failed: {failed}")
            else:
                request.complete_without_response()
        elif results.pending:
            request.body = {}  # releases the request's buffer
            responses = results.responses
            DelayedProduce(
                self._reactor, request, results.pending, timeout_s, lambda: self._respond(request, responses)
            )
        elif failed is not None:
            self._respond(request, results.responses)
        else:
            request.respond(response_body(results.responses))

    def _respond(self, request: Request, responses: list[Row]) -> None:
        """Send the response, with the current leader of each partition that failed."""
        if request.is_sliced:
            respond_in_slices(request, self._response_steps(request, responses))
            return
        hints = LeaderHints(self._partitions, self._metadata, request.connection.listener)
        for topic in responses:
            for row in topic["partition_responses"]:
                if row["error_code"]:
                    _add_hint(hints, topic["name"], row)
        request.respond(response_body(responses, hints.endpoints()))

    def _response_steps(self, request: Request, responses: list[Row]) -> Steps[Row]:
        hints = LeaderHints(self._partitions, self._metadata, request.connection.listener)
        for topic in responses:
            for number, row in enumerate(topic["partition_responses"]):
                if row["error_code"]:
                    _add_hint(hints, topic["name"], row)
                if number % STEP_ROWS == 0:
                    yield
        return response_body(responses, hints.endpoints())


def _all_reached(
    outcomes: Sequence[Outcome], partition: Partition, acks: int
) -> TypeGuard[Sequence[AppendResult]]:
    """Return whether all batches were appended and may be acknowledged."""
    end_offset = 0
    for outcome in outcomes:
        if outcome.__class__ is not AppendResult:
            return False
        if outcome[1] >= end_offset:
            end_offset = outcome[1] + 1
    return is_reached(partition, end_offset, acks)


def _add_hint(hints: LeaderHints, topic: str, row: Row) -> None:
    """Add the current leader to the row of a partition that failed."""
    row["current_leader"] = hints.leader_of(TopicPartition(topic, row["index"]), ErrorCode.of(row["error_code"]))


def invalid_acks_error(acks: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
