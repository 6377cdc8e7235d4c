"""``/v1/topics/{topic}/messages``: reads pages of records, follows new ones, writes and deletes records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kreplica.admin.cluster_state.published_metadata import PublishedTopic, topic_of
from kreplica.admin.http.api import Call, Download, EventStream, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import IN_TOPIC
from kreplica.admin.messages.deleting import CleanupSettings, RecordDeletions
from kreplica.admin.messages.downloading import CONTENT_TYPES, CSV, NDJSON, file_parts
from kreplica.admin.messages.fetching import TopicQuery
from kreplica.admin.messages.message_schemas import (
    AFTER,
    BASE64,
    BEFORE,
    BODY,
    DELETED,
    DOWNLOAD_LIMIT,
    FILE_TYPE,
    FORMATS,
    FROM,
    LIMIT,
    MESSAGE,
    MESSAGES,
    ONE_PARTITION,
    ORDER,
    SCAN_LIMIT,
    SELECTION,
    UTF8,
    WRITTEN,
)
from kreplica.admin.messages.pages import PageRequest, StartPosition
from kreplica.admin.messages.positions import NEWEST
from kreplica.admin.messages.reading import MessageReader
from kreplica.admin.messages.selections import encoded_part, from_base64, selection_of
from kreplica.admin.messages.tailing import MessageTail
from kreplica.admin.messages.writing import MessageWriter
from kreplica.admin.peers.leaders import ISOLATIONS, Leaders
from kreplica.formats.catalogue import Formats
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime

PATH = "/v1/topics/{topic}/messages"

SCANNED_PER_PAGE = 100_000
"""Maximum number of records that a page of a download scans."""

_ABSENT = "The topic or partition does not exist."


class Messages:
    """Reads, writes and deletes records through the leaders of the partitions, over Kafka's protocol.

    :param settings_of: returns the effective settings of a topic.
    """

    def __init__(
        self,
        runtime: Runtime,
        leaders: Leaders,
        formats: Formats,
        schemas: RecordSchemas,
        settings_of: Callable[[str], CleanupSettings],
    ) -> None:
        self._leaders = leaders
        self._formats = formats
        self._schemas = schemas
        self._offload = runtime.offload
        self._reader = MessageReader(runtime, leaders, schemas)
        self._tail = MessageTail(runtime, leaders, self._reader.fetcher)
        self._writer = MessageWriter(runtime, leaders)
        self._deletions = RecordDeletions(leaders, settings_of)

    def routes(self) -> Sequence[Route]:
        """Return the routes that read, follow, write and delete records."""
        return (*self._reads(), *self._writes())

    def _reads(self) -> Sequence[Route]:
        return (
            Route(
                "GET",
                PATH,
                self.read,
                "A page of a topic's records.",
                response=MESSAGES,
                query=(IN_TOPIC, ORDER, FROM, AFTER, LIMIT, SCAN_LIMIT, *SELECTION),
                problems={404: _ABSENT, 503: "No partition has a leader that responds."},
            ),
            Route(
                "GET",
                f"{PATH}/tail",
                self.tail,
                "New records of a topic as stream events: `message`, `skipped`, `progress` and `problems`.",
                response=MESSAGE,
                query=(IN_TOPIC, *SELECTION),
                problems={404: _ABSENT},
                streams=True,
            ),
            Route(
                "GET",
                f"{PATH}/download",
                self.download,
                "A topic's records as a file. If the file cannot be completed, the connection is closed early.",
                query=(IN_TOPIC, FILE_TYPE, ORDER, FROM, DOWNLOAD_LIMIT, *SELECTION),
                problems={404: _ABSENT},
                streams=True,
                media_type=CONTENT_TYPES[NDJSON],
                other_media_types=(CONTENT_TYPES[CSV],),
            ),
            Route("GET", "/v1/formats", self.formats, "The formats of keys and values.", response=FORMATS),
        )

    def _writes(self) -> Sequence[Route]:
        return (
            Route(
                "POST",
                PATH,
                self.write,
                "Write one record; the response is sent when all in-sync replicas have it.",
                response=WRITTEN,
                status=201,
                body=BODY,
                query=(IN_TOPIC,),
                problems={
                    403: "Only coordinators write to this topic.",
                    404: _ABSENT,
                    413: "The record is larger than the topic allows.",
                },
            ),
            Route(
                "DELETE",
                PATH,
                self.delete,
                "Delete the records before a position.",
                response=DELETED,
                query=(IN_TOPIC, BEFORE, ONE_PARTITION),
                problems={404: _ABSENT, 503: "A leader does not respond; `detail` counts the deletions."},
            ),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}/messages``."""
        request = await self._page_request(call, call.query["after"], call.query["scan_limit"])
        return JsonResponse(await self._reader.page(request))

    async def download(self, call: Call) -> Download:
        """``GET /v1/topics/{topic}/messages/download``."""
        kind = call.query["as"]
        request = await self._page_request(call, None, SCANNED_PER_PAGE)
        self._check_partition(request.topic, request.partition)
        parts = file_parts(self._reader, request, kind)
        return Download(f"{request.topic.name}.{kind}", CONTENT_TYPES[kind], parts)

    async def tail(self, call: Call) -> EventStream:
        """``GET /v1/topics/{topic}/messages/tail``."""
        topic, partition = await self._topic(call), call.query["partition"]
        partitions = self._check_partition(topic, partition)
        return EventStream(self._tail.events(topic, [partition] if partition is not None else sorted(partitions)))

    async def write(self, call: Call) -> JsonResponse:
        """``POST /v1/topics/{topic}/messages``."""
        body: Mapping[str, Any] = call.body
        topic = self._published_topic(call)
        key = await encoded_part(self._formats, self._schemas, self._offload, body, "key")
        value = await encoded_part(self._formats, self._schemas, self._offload, body, "value")
        headers = tuple(
            (row["key"], _header_bytes(row, f"body.headers[{number}].value"))
            for number, row in enumerate(body.get("headers", ()))
        )
        partition = self._writer.partition_for(topic, body.get("partition"), key)
        offset = timestamp_ms = None
        if not call.dry_run:
            offset, timestamp_ms = await self._writer.write(topic, partition, key, value, headers)
        document = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
        return JsonResponse({**document, "dry_run": call.dry_run, "znodes": []}, status=200 if call.dry_run else 201)

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/topics/{topic}/messages``."""
        topic, before = self._published_topic(call), call.query["before"]
        if before is None:
            raise Problem(
                400,
                "INVALID_REQUEST",
                "the query parameter 'before' is missing",
                what_to_do="Set the position: ?before=timestamp:1700000000000. To delete all records: ?before=latest.",
            )
        rows = await self._deletions.delete(topic, call.query["partition"], _begin(before), dry_run=call.dry_run)
        return JsonResponse({"topic": topic.name, "partitions": rows, "dry_run": call.dry_run, "znodes": []})

    async def formats(self, call: Call) -> JsonResponse:
        """``GET /v1/formats``."""
        rows = []
        for name in self._formats.names:
            each = self._formats.named(name)
            rows.append(
                {
                    "name": name,
                    "description": self._formats.description(name),
                    "can_encode": each.can_encode,
                    "needs_schema": each.schema_type is not None,
                }
            )
        return JsonResponse({"formats": rows, "schema_registry": {"configured": self._schemas.store.has_registry}})

    def _published_topic(self, call: Call) -> PublishedTopic:
        return topic_of(self._leaders.published, call.path["topic"])

    def _check_partition(self, topic: TopicQuery, partition: int | None) -> Collection[int]:
        """Return the partitions of a topic.

        :raise Problem: 404 if the partition does not exist.
        """
        partitions = topic_of(self._leaders.published, topic.name).partitions
        if partition is not None and partition not in partitions:
            raise _no_partition(TopicPartition(topic.name, partition))
        return partitions

    async def _page_request(self, call: Call, after: str | None, scan_limit: int) -> PageRequest:
        query = call.query
        order = query["order"]
        begin = _begin(query["from"] or ("latest" if order == NEWEST else "earliest"))
        topic, limit = await self._topic(call), query["limit"]
        return PageRequest(topic, query["partition"], begin, after, limit, scan_limit, order)

    async def _topic(self, call: Call) -> TopicQuery:
        topic = self._published_topic(call)
        isolation = ISOLATIONS[call.query["isolation"]]
        selection = await selection_of(self._formats, self._offload, topic.name, call.query)
        return TopicQuery(topic.name, topic.topic_id, isolation, selection)


def _begin(text: str) -> StartPosition:
    kind, _, value = text.partition(":")
    return StartPosition(kind, int(value or 0))


def _header_bytes(row: Mapping[str, Any], where: str) -> bytes | None:
    text = row.get("value")
    if text is None or row.get("encoding", UTF8) != BASE64:
        return None if text is None else text.encode()
    return from_base64(text, where)


def _no_partition(key: TopicPartition) -> Problem:
    return Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", f"partition {key.partition} of {key.topic} does not exist")
