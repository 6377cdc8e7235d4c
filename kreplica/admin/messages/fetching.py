"""Fetches chunks of a topic's partitions from their leaders and scans them in worker threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kreplica.admin.messages.positions import Span
from kreplica.admin.messages.scanning import Chunk, ScanLimits, Scanned, Selection, scan
from kreplica.admin.peers.leaders import EARLIEST, Leaders
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.model import TopicPartition
from kreplica.runtime.gather import gather
from kreplica.runtime.offload import Offload
from kreplica.wire.messages import FETCH

CHUNK_BYTES = 256 * 1024
"""Size of a fetch from one partition; a worker thread scans it in about ten milliseconds."""

RESPONSE_BYTES = 1024 * 1024
FETCH_SECONDS_MAX = 5.0
SCHEMAS_PER_CHUNK_MAX = 50
"""Maximum number of schemas that are loaded for one chunk; records with other schemas are reported."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """Topic, isolation level and selection of a read.

    :param isolation: 0 for read uncommitted, 1 for read committed.
    """

    name: str
    topic_id: UUID
    isolation: int
    selection: Selection


@dataclass(slots=True)
class Round:
    """The results of one fetch from every leader.

    :ivar scanned: results by partition, if any.
    :ivar high_watermarks: the high watermarks in the responses.
    :ivar out_of_range: next offset of partitions whose log lacks the requested one: the log start offset, or the end of
        the span if the log was truncated.
    """

    scanned: dict[int, Scanned] = field(default_factory=dict)
    high_watermarks: dict[int, int] = field(default_factory=dict)
    out_of_range: dict[int, int] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)


class ChunkFetcher:
    """Fetches and scans chunks; has no state between two rounds."""

    def __init__(self, leaders: Leaders, offload: Offload, schemas: RecordSchemas) -> None:
        self._leaders = leaders
        self._offload = offload
        self._schemas = schemas

    async def round(self, topic: TopicQuery, spans: Mapping[int, Span], limits: ScanLimits) -> Round:
        """Fetch once from every leader; a full response contains only the first partitions of ``spans``.

        :param spans: the ranges to read; not modified.
        """
        result = Round()
        keys = [TopicPartition(topic.name, number) for number in spans]
        by_leader = self._leaders.by_leader(keys, result.problems)
        await gather(self._fetch(topic, leader, keys, spans, limits, result) for leader, keys in by_leader.items())
        return result

    async def _fetch(
        self,
        topic: TopicQuery,
        leader: int,
        keys: Sequence[TopicPartition],
        spans: Mapping[int, Span],
        limits: ScanLimits,
        result: Round,
    ) -> None:
        body = _request(topic, {key.partition: spans[key.partition].next_offset for key in keys})
        try:
            response = await self._leaders.connections.request(leader, FETCH, body, timeout_s=FETCH_SECONDS_MAX)
        except ClientError as error:
            result.problems.update(dict.fromkeys(keys, f"broker {leader} does not respond: {error}"))
            return
        if response.get("error_code"):
            code = ErrorCode.of(response["error_code"])
            result.problems.update(dict.fromkeys(keys, f"broker {leader} returned {code.name}"))
            return
        for topic_row in response["responses"]:
            for row in topic_row["partitions"]:
                await self._process_partition(topic, leader, row, spans[row["partition_index"]], limits, result)

    async def _process_partition(
        self, topic: TopicQuery, leader: int, row: Row, span: Span, limits: ScanLimits, result: Round
    ) -> None:
        number = row["partition_index"]
        key = TopicPartition(topic.name, number)
        code = ErrorCode.of(row["error_code"])
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find_next_offset(key, span, result)
        elif code is not ErrorCode.NONE:
            result.problems[key] = f"broker {leader} returned {code.name} for {key}"
        else:
            result.high_watermarks[number] = row["high_watermark"]
            if row["records"]:
                result.scanned[number] = await self._scan(topic, row, span, limits)

    async def _scan(self, topic: TopicQuery, row: Row, span: Span, limits: ScanLimits) -> Scanned:
        """Scan a chunk; if a schema is missing, load it and scan the chunk again.

        The last scan uses only the schemas in memory, so that the loop ends even if the store drops some of them.
        """
        aborted = tuple((each["producer_id"], each["first_offset"]) for each in row["aborted_transactions"] or ())
        # The response's buffer belongs to the connection, so the worker thread gets a copy.
        data = bytes(row["records"])
        chunk = Chunk(row["partition_index"], data, span.next_offset, span.end_offset, aborted)
        for _ in range(SCHEMAS_PER_CHUNK_MAX):
            scanned = await self._offload.run(scan, chunk, topic.selection, limits)
            if scanned.missing_schema is None:
                return scanned
            await self._schemas.load(scanned.missing_schema)
        view = replace(topic.selection.view, only_loaded=True)
        return await self._offload.run(scan, chunk, replace(topic.selection, view=view), limits)

    async def _find_next_offset(self, key: TopicPartition, span: Span, result: Round) -> None:
        """Record the next offset to read after records were deleted or the log was truncated."""
        earliest = await self._leaders.offsets({key: EARLIEST})
        result.problems.update(earliest.problems)
        start_offset = earliest.found.get(key)
        if start_offset is not None:
            result.out_of_range[key.partition] = start_offset if start_offset > span.next_offset else span.end_offset


def _request(topic: TopicQuery, offsets: Mapping[int, int]) -> Row:
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": RESPONSE_BYTES,
        "isolation_level": topic.isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition": number,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "log_start_offset": -1,
                        "partition_max_bytes": CHUNK_BYTES,
                    }
                    for number, offset in offsets.items()
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
