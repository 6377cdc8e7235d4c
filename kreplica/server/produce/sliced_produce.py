"""Produce requests of many partitions: appended in slices, so that other connections are served in between.

The connection is not read until all batches are appended or rejected, so its later requests cannot overtake this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.runtime.slices import Steps
from kreplica.server.produce.record_checks import Unvalidated
from kreplica.server.produce.results import ProduceResults
from kreplica.server.produce.transactional_produce import TransactionalProduces
from kreplica.server.protocol.request import COPIED_BYTES_MAX, Request
from kreplica.server.protocol.responses import in_slices, run_handler

PARTITIONS_AT_ONCE = 200
"""A request with at most this many partitions is appended in one step; each partition takes from 10 us to 100 us."""

STEP_PARTITIONS = 2

Row = dict[str, Any]


class Appender(Protocol):
    """Appends batches and sends responses; implemented by ``Produce``."""

    @property
    def transactional(self) -> TransactionalProduces:
        """Appends the batches of transactions."""

    def find_unvalidated(self, request: Request, topics: Sequence[Row]) -> list[Unvalidated]:
        """Return the batches that must be validated later; empty if all were validated at once."""

    def validate_later(self, request: Request, batches: list[Unvalidated], done: Callable[[], None]) -> None:
        """Validate batches off the reactor; the connection is held until ``done`` is called."""

    def append_topics(
        self, request: Request, topics: Sequence[Row], results: ProduceResults, rejection: KafkaError | None
    ) -> list[Row]:
        """Append the batches of these topics; return response rows by topic."""

    def finish(self, request: Request, results: ProduceResults, timeout_s: float) -> None:
        """Send the response when all batches may be acknowledged."""


class LargeProduce:
    """One large request; if its connection closes, the remaining batches are not appended.

    :param rejection: error for all its batches, or None.
    """

    def __init__(self, produce: Appender, request: Request, rejection: KafkaError | None) -> None:
        self._produce = produce
        self._request = request
        self._rejection = rejection

    def begin(self) -> None:
        """Start handling the request; return before it is complete."""
        request = self._request
        if request.size > COPIED_BYTES_MAX:
            request.connection.keeps_frame = True
        else:
            for topic in request.body["topic_data"]:
                for data in topic["partition_data"]:
                    _copy(data, "records")
        request.build_in_slices()
        run_handler(request, self._run())

    async def _run(self) -> None:
        request, produce = self._request, self._produce
        connection = request.connection
        connection.suspend()
        try:
            if self._rejection is None:
                await self._validate()
            if self._rejection is None and request.body.get("transactional_id") is not None:
                results = await produce.transactional.append_in_slices(request)
            else:
                results = ProduceResults(request.body["acks"])
                await in_slices(request, self._append(results))
        finally:
            connection.release_frame()
            connection.resume()
        produce.finish(request, results, request.body["timeout_ms"] / 1000)

    async def _validate(self) -> None:
        request, produce = self._request, self._produce
        unvalidated = await in_slices(request, self._find_unvalidated())
        if unvalidated:
            validated: Deferred[None] = Deferred()
            produce.validate_later(request, unvalidated, lambda: validated.callback(None))
            await validated

    def _find_unvalidated(self) -> Steps[list[Unvalidated]]:
        unvalidated = []
        for topics in self._parts():
            batches = self._produce.find_unvalidated(self._request, topics)
            for _, container, key in batches:
                _copy(container, key)
            unvalidated += batches
            yield
        return unvalidated

    def _append(self, results: ProduceResults) -> Steps[None]:
        responses = results.responses
        last: list[Row] | None = None
        for topics in self._parts():
            appended = self._produce.append_topics(self._request, topics, results, self._rejection)
            for topic, response in zip(topics, appended, strict=True):
                if topic["whole"] is last:
                    responses[-1]["partition_responses"] += response["partition_responses"]
                else:
                    responses.append(response)
                last = topic["whole"]
            yield

    def _parts(self) -> Iterator[list[Row]]:
        """Divide topics into parts of ``STEP_PARTITIONS``; ``whole`` identifies the topic of a part."""
        part: list[Row] = []
        count = 0
        for topic in self._request.body["topic_data"]:
            whole = topic["partition_data"]
            for start in range(0, max(len(whole), 1), STEP_PARTITIONS):
                rows = whole[start : start + STEP_PARTITIONS]
                part.append({"name": topic["name"], "partition_data": rows, "whole": whole})
                count += max(len(rows), 1)
                if count >= STEP_PARTITIONS:
                    yield part
                    part, count = [], 0
        if part:
            yield part


def _copy(container: Any, key: Any) -> None:
    """Copy a batch out of its frame, whose memory is reused."""
    if type(container[key]) is memoryview:
        container[key] = bytearray(container[key])
