"""Produce (key 0): append batches, and answer at once or when the requested replicas have them."""

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
from kreplica.server.produce.batch_validation import (
    PACKED_SIZE_MAX,
    BatchValidation,
    Unvalidated,
    must_be_read,
    to_validate,
)
from kreplica.server.produce.batching import ProduceRun
from kreplica.server.produce.delayed_produce import (
    ALL_IN_SYNC,
    LEADER_ONLY,
    NO_ANSWER,
    Pending,
    WaitingForReplicas,
    is_reached,
)
from kreplica.server.produce.request_templates import ProduceTemplate
from kreplica.server.produce.results import answer_body, appended_row, error_row, find_partition
from kreplica.server.produce.sliced_produce import PARTITIONS_AT_ONCE, Appended, LargeProduce
from kreplica.server.produce.transactional_produce import TransactionalProduces
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import LeaderHints, answer_in_slices
from kreplica.storage.log.results import AppendResult
from kreplica.transactions.admission import Admission
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK

FORMAT_2_FROM = 3
"""From this version on Produce carries batches of format 2 only."""

ACKS = (ALL_IN_SYNC, NO_ANSWER, LEADER_ONLY)

Row = dict[str, Any]


class Produce:
    """Handler of Produce; an error of one partition does not keep the other batches from being appended.

    :param metadata: source of the current leader in error responses (KIP-951).
    :param validation: validates batches whose records have to be read.
    """

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        wall_clock_ms: Callable[[], int],
        admission: Admission,
        validation: BatchValidation,
    ) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._metadata = metadata
        self._wall_clock_ms = wall_clock_ms
        self.transactional = TransactionalProduces(partitions, admission, wall_clock_ms)
        self._validation = validation

    def __call__(self, request: Request, *, validated: bool = False) -> None:
        body = request.body
        count = 0
        if not validated:
            look = request.size > PACKED_SIZE_MAX or "transactional_id" not in body  # before version 3
            try:
                for topic in body["topic_data"]:
                    for data in topic["partition_data"]:
                        count += 1
                        if data["records"][ATTRIBUTES_POSITION] & CODEC_MASK:
                            look = True
            except (IndexError, TypeError):  # no records, or too few bytes
                look = True
                count = sum([len(topic["partition_data"]) for topic in body["topic_data"]])
            if count > PARTITIONS_AT_ONCE or request.is_sliced:
                refusal = None if body["acks"] in ACKS else wrong_acks(body["acks"])
                LargeProduce(self, request, refusal).begin()
                return
            if look and self._validate_later(request):
                return
        acks = body["acks"]
        if acks not in ACKS:
            self.append_all(request, acks, wrong_acks(acks))
        elif body.get("transactional_id") is not None:
            timeout_s = body["timeout_ms"] / 1000
            self.transactional.begin(request, lambda produced: self.finish(request, acks, timeout_s, *produced))
            request.body = {}  # releases the buffer: deferred batches were copied
        else:
            self.append_all(request, acks, None)

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
            request.connection, batches, lambda: self(request, validated=True), needed=body["acks"] != NO_ANSWER
        )
        return True

    def unvalidated(self, request: Request, topics: Sequence[Row]) -> list[Unvalidated]:
        """Return the batches of these topics that have to be read, except those that were validated at once."""
        before_2 = request.version < FORMAT_2_FROM
        batches = to_validate(self._partitions, topics, is_large=True, formats_before_2=before_2)
        return [] if self._validation.validate_now(batches) else batches

    def validate_later(self, request: Request, batches: list[Unvalidated], done: Callable[[], None]) -> None:
        """Validate batches, which are copies, away from the reactor."""
        needed = request.body["acks"] != NO_ANSWER
        self._validation.validate_later(request.connection, batches, done, needed=needed)

    def handle_run(self, run: ProduceRun) -> None:
        """Append the batches of a run; respond from a template if all of them can be acknowledged."""
        template = run.template
        key = template.topic_partition
        partition = self._partitions.get(key)
        if partition is not None and (run.codecs or partition.log.config.opens_records):
            records = run.records
            batches = [
                Unvalidated(partition.log.config, records, index)
                for index, batch in enumerate(records)
                if must_be_read(partition, batch)
            ]
            if not self._validation.validate_now(batches):
                requests = run.requests()
                records[:] = [bytearray(batch) if type(batch) is memoryview else batch for batch in records]
                self._validation.validate_later(
                    run.connection, batches, lambda: self._append_requests(template, requests, records)
                )
                return
        if partition is None:
            outcomes = self._refuse_all(key, run.records)
        else:
            all_in_sync = template.acks == ALL_IN_SYNC
            outcomes = partition.append_all(run.records, self._wall_clock_ms(), all_in_sync=all_in_sync)
            if run.is_next and _all_reached(outcomes, partition, template.acks):
                run.answer(template.responses(run.correlation_ids, outcomes, partition.log.log_start_offset))
                return
        for request, outcome in zip(run.requests(), outcomes, strict=True):
            self._conclude(request, template, partition, outcome)

    def _append_requests(
        self, template: ProduceTemplate, requests: Sequence[Request], records: Sequence[Buffer]
    ) -> None:
        """Append batches that were validated off the reactor; this broker may have lost the partition since."""
        partition = self._partitions.get(template.topic_partition)
        if partition is None:
            outcomes = self._refuse_all(template.topic_partition, records)
        else:
            all_in_sync = template.acks == ALL_IN_SYNC
            outcomes = partition.append_all(records, self._wall_clock_ms(), all_in_sync=all_in_sync)
        for request, outcome in zip(requests, outcomes, strict=True):
            self._conclude(request, template, partition, outcome)

    def _refuse_all(self, key: TopicPartition, batches: Sequence[Buffer]) -> Sequence[AppendResult | KafkaError]:
        now_ms = self._wall_clock_ms()
        return [self._partitions.refuse(key, records, now_ms) for records in batches]

    def _conclude(
        self,
        request: Request,
        template: ProduceTemplate,
        partition: Partition | None,
        outcome: AppendResult | KafkaError,
    ) -> None:
        """Answer one request of a run, now or when its batch may be acknowledged."""
        topic, index = template.topic_partition
        pending = []
        if isinstance(outcome, KafkaError):
            row = error_row(index, outcome)
        else:
            assert partition is not None
            row = appended_row(index, partition.log.log_start_offset, outcome)
            if not is_reached(partition, outcome.last_offset + 1, template.acks):
                pending.append(Pending(partition, outcome.last_offset + 1, template.acks, row))
        failed = outcome if isinstance(outcome, KafkaError) else None
        responses = [{"name": topic, "partition_responses": [row]}]
        self.finish(request, template.acks, template.timeout_ms / 1000, responses, pending, failed)

    def append_all(self, request: Request, acks: int, refusal: KafkaError | None, part: Appended | None = None) -> None:
        """Append all batches and answer.

        :param refusal: error for every batch; nothing is appended then.
        :param part: if given, append its topics instead, record the results in it, and do not answer.
        """
        body = request.body
        now_ms = self._wall_clock_ms()
        pending: list[Pending] = [] if part is None else part.pending
        failed: KafkaError | None = None
        responses = []
        for topic in body["topic_data"] if part is None else part.topics:
            rows = []
            for data in topic["partition_data"]:
                key = TopicPartition(topic["name"], data["index"])
                try:
                    if refusal is not None:
                        raise refusal
                    partition, result = self._append(key, data["records"], acks, now_ms, request.version)
                except KafkaError as error:
                    failed = error
                    rows.append(error_row(key.partition, error))
                    continue
                row = appended_row(key.partition, partition.log.log_start_offset, result)
                rows.append(row)
                if not is_reached(partition, result.last_offset + 1, acks):
                    pending.append(Pending(partition, result.last_offset + 1, acks, row))
            responses.append({"name": topic["name"], "partition_responses": rows})
        if part is None:
            self.finish(request, acks, body["timeout_ms"] / 1000, responses, pending, failed)
        else:
            part.responses = responses
            part.failed = failed or part.failed

    def finish(
        self,
        request: Request,
        acks: int,
        timeout_s: float,
        responses: list[Row],
        pending: list[Pending],
        failed: KafkaError | None,
    ) -> None:
        """Answer as soon as all appended batches may be acknowledged."""
        if acks == NO_ANSWER:
            # With acks=0 there is no response: closing the connection is how Kafka's clients notice an error.
            if failed is not None:
                request.abort(f"produce with acks=0 failed: {failed}")
            else:
                request.answer_nothing()
        elif pending:
            request.body = {}  # releases the request's buffer
            WaitingForReplicas(self._reactor, request, pending, timeout_s, lambda: self._answer(request, responses))
        elif failed is not None:
            self._answer(request, responses)
        else:
            request.answer(answer_body(responses))

    def _answer(self, request: Request, responses: list[Row]) -> None:
        """Answer, with the current leader of partitions that failed."""
        if request.is_sliced:
            answer_in_slices(request, self._answer_steps(request, responses))
            return
        hints = LeaderHints(self._partitions, self._metadata, request.connection.listener)
        for topic in responses:
            for row in topic["partition_responses"]:
                if row["error_code"]:
                    _add_hint(hints, topic["name"], row)
        request.answer(answer_body(responses, hints.endpoints()))

    def _answer_steps(self, request: Request, responses: list[Row]) -> Steps[Row]:
        hints = LeaderHints(self._partitions, self._metadata, request.connection.listener)
        for topic in responses:
            for number, row in enumerate(topic["partition_responses"]):
                if row["error_code"]:
                    _add_hint(hints, topic["name"], row)
                if number % STEP_ROWS == 0:
                    yield
        return answer_body(responses, hints.endpoints())

    def _append(
        self, key: TopicPartition, records: Buffer | None, acks: int, now_ms: int, version: int
    ) -> tuple[Partition, AppendResult]:
        """Append one batch.

        :raise KafkaError: nothing was appended.
        """
        partition = find_partition(self._partitions, key, records, version, now_ms)
        assert records is not None
        return partition, partition.append(records, now_ms, all_in_sync=acks == ALL_IN_SYNC)


def _all_reached(
    outcomes: Sequence[AppendResult | KafkaError], partition: Partition, acks: int
) -> TypeGuard[Sequence[AppendResult]]:
    """Return whether all batches were appended and may be acknowledged."""
    end_offset = 0
    for outcome in outcomes:
        if outcome.__class__ is not AppendResult:
            return False
        end_offset = max(end_offset, outcome[1] + 1)
    return is_reached(partition, end_offset, acks)


def _add_hint(hints: LeaderHints, topic: str, row: Row) -> None:
    """Add the current leader to the row of a partition that failed."""
    row["current_leader"] = hints.leader_of(TopicPartition(topic, row["index"]), ErrorCode.of(row["error_code"]))


def wrong_acks(acks: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
