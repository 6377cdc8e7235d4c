"""``/v1/topics/{topic}/messages``: reads pages of records, follows new ones and writes records."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.admin.cluster_state.published_metadata import PublishedTopic, topic_of
from kreplica.admin.http.api import Call, EventStream, JsonResponse, Parameter, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    COUNT,
    IN_TOPIC,
    PARTITION,
    STRING,
    TIME_MS,
    listing,
    nullable,
    one_of,
    record,
    written,
)
from kreplica.admin.messages.fetching import TopicQuery
from kreplica.admin.messages.reading import MessageReader, PageRequest, StartPosition
from kreplica.admin.messages.searching import search_for
from kreplica.admin.messages.tailing import MessageTail
from kreplica.admin.messages.writing import MessageWriter
from kreplica.admin.peers.leaders import ISOLATIONS, READ_UNCOMMITTED, Leaders
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime

PATH = "/v1/topics/{topic}/messages"

UTF8, BASE64 = "utf8", "base64"
ENCODING = one_of(UTF8, BASE64)
LIMIT_MAX = 1000
SCANNED_MAX = 1_000_000
SEARCH_LENGTH_MAX = 1000

HEADER = record(
    {"key": STRING, "value": nullable(STRING), "encoding": nullable(ENCODING)},
    title="MessageHeader",
)

MESSAGE = record(
    {
        "partition": PARTITION,
        "offset": COUNT,
        "timestamp_ms": {**nullable(TIME_MS), "description": "Null if the producer set none."},
        "timestamp_type": one_of("create_time", "log_append_time"),
        "key": nullable(STRING),
        "value": nullable(STRING),
        "key_encoding": {**nullable(ENCODING), "description": "base64 if the bytes are not UTF-8; null: no key."},
        "value_encoding": {**nullable(ENCODING), "description": "base64 if the bytes are not UTF-8; null: no value."},
        "headers": listing(HEADER),
        "size_bytes": {**COUNT, "description": "Size of key, value and headers in bytes."},
    },
    title="Message",
)

MESSAGES = record(
    {
        "messages": {**listing(MESSAGE), "description": "Ordered by time; records of one partition keep their order."},
        "next": {**nullable(STRING), "description": "`after` of the next page; null on the last page."},
        "scanned": {**COUNT, "description": "Number of scanned records."},
        "problems": {**listing(STRING), "description": "A sentence for each partition that could not be read."},
    },
    title="Messages",
)

BODY = record(
    {
        "partition": {
            **nullable(PARTITION),
            "description": "If absent, chosen by the key as in the Java client; any partition without a key.",
        },
        "key": nullable(STRING),
        "value": {**nullable(STRING), "description": "Null or absent: no value, which deletes a compacted key."},
        "key_encoding": ENCODING,
        "value_encoding": ENCODING,
        "headers": listing(
            record({"key": STRING, "value": nullable(STRING), "encoding": ENCODING}, optional=("value", "encoding")),
            maxItems=1000,
        ),
    },
    title="MessageToWrite",
    optional=("partition", "key", "value", "key_encoding", "value_encoding", "headers"),
    examples=[{"key": "42", "value": "two coffees"}],
)

WRITTEN = written(
    {
        "partition": PARTITION,
        "offset": {**nullable(COUNT), "description": "Null if nothing was written."},
        "timestamp_ms": nullable(TIME_MS),
    },
    title="MessageWritten",
)

ONE_PARTITION = Parameter("partition", PARTITION, "Only this partition.")
SEARCH = Parameter(
    "search",
    {"type": "string", "maxLength": SEARCH_LENGTH_MAX},
    "Only records with this text, case-insensitive, in the key, the value or a header; "
    "`/expression/` is an RE2 expression. Only the first 64 KiB of each field are searched.",
)
ISOLATION = Parameter(
    "isolation", one_of(*ISOLATIONS), "Whether uncommitted records are included.", default=READ_UNCOMMITTED
)
READ = (
    IN_TOPIC,
    ONE_PARTITION,
    Parameter(
        "from",
        {"type": "string", "pattern": r"^(earliest|latest|offset:[0-9]{1,18}|timestamp:[0-9]{1,18})$"},
        "Start: `earliest`; `latest` (the last records); `offset:N`; `timestamp:MS` (milliseconds since 1970).",
        default="earliest",
    ),
    Parameter("after", {"type": "string"}, "`next` of the previous response; `from` is then ignored."),
    Parameter(
        "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "Maximum number of records.", default=100
    ),
    SEARCH,
    Parameter(
        "scan_limit",
        {"type": "integer", "minimum": 1, "maximum": SCANNED_MAX},
        "Maximum number of records scanned, for at most three seconds; continue with `next`.",
        default=20_000,
    ),
    ISOLATION,
)
_ABSENT = "The topic or partition does not exist."


class Messages:
    """Reads and writes records through the leaders of the partitions, over Kafka's protocol."""

    def __init__(self, runtime: Runtime, leaders: Leaders) -> None:
        self._leaders = leaders
        self._reader = MessageReader(runtime, leaders)
        self._tail = MessageTail(runtime, leaders, self._reader.fetcher)
        self._writer = MessageWriter(runtime, leaders)

    def routes(self) -> Sequence[Route]:
        """Return the routes that read, follow and write records."""
        return (
            Route(
                "GET",
                PATH,
                self.read,
                "A page of a topic's records.",
                response=MESSAGES,
                query=READ,
                problems={404: _ABSENT, 503: "No partition has a leader that responds."},
            ),
            Route(
                "GET",
                f"{PATH}/tail",
                self.tail,
                "New records of a topic as stream events: `message`, `skipped` and `problems`.",
                response=MESSAGE,
                query=(IN_TOPIC, ONE_PARTITION, SEARCH, ISOLATION),
                problems={404: _ABSENT},
                streams=True,
            ),
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
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}/messages``."""
        query = call.query
        topic = self._topic(call)
        page = PageRequest(
            topic, query["partition"], _begin(query["from"]), query["after"], query["limit"], query["scan_limit"]
        )
        return JsonResponse(await self._reader.page(page))

    async def tail(self, call: Call) -> EventStream:
        """``GET /v1/topics/{topic}/messages/tail``."""
        topic, partition = self._topic(call), call.query["partition"]
        known = topic_of(self._leaders.published, topic.name).partitions
        if partition is not None and partition not in known:
            raise _no_partition(TopicPartition(topic.name, partition))
        return EventStream(self._tail.events(topic, [partition] if partition is not None else sorted(known)))

    async def write(self, call: Call) -> JsonResponse:
        """``POST /v1/topics/{topic}/messages``."""
        body: Mapping[str, Any] = call.body
        topic = self._published(call)
        key = _decoded(body.get("key"), body.get("key_encoding", UTF8), "body.key")
        value = _decoded(body.get("value"), body.get("value_encoding", UTF8), "body.value")
        headers = tuple(
            (row["key"], _decoded(row.get("value"), row.get("encoding", UTF8), f"body.headers[{number}].value"))
            for number, row in enumerate(body.get("headers", ()))
        )
        partition = self._writer.partition_for(topic, body.get("partition"), key)
        offset = timestamp_ms = None
        if not call.dry_run:
            offset, timestamp_ms = await self._writer.write(topic, partition, key, value, headers)
        document = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
        return JsonResponse({**document, "dry_run": call.dry_run, "znodes": []}, status=200 if call.dry_run else 201)

    def _published(self, call: Call) -> PublishedTopic:
        return topic_of(self._leaders.published, call.path["topic"])

    def _topic(self, call: Call) -> TopicQuery:
        topic = self._published(call)
        isolation = ISOLATIONS[call.query["isolation"]]
        return TopicQuery(topic.name, topic.topic_id, isolation, search_for(call.query["search"]))


def _begin(text: str) -> StartPosition:
    kind, _, value = text.partition(":")
    return StartPosition(kind, int(value or 0))


def _decoded(text: str | None, encoding: str, where: str) -> bytes | None:
    """Return a text field of the body as bytes.

    :raise Problem: 400 for malformed base64.
    """
    if text is None:
        return None
    if encoding == UTF8:
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(400, "INVALID_REQUEST", f"{where} is not valid base64: {error}") from None


def _no_partition(key: TopicPartition) -> Problem:
    return Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", f"partition {key.partition} of {key.topic} does not exist")
