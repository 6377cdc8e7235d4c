"""JSON schemas of records in the REST API."""

from __future__ import annotations

from kreplica.admin.http.api import Parameter
from kreplica.admin.http.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER,
    PARTITION,
    STRING,
    TIME_MS,
    listing,
    nullable,
    one_of,
    record,
    written,
)
from kreplica.admin.messages.downloading import CSV, NDJSON
from kreplica.admin.messages.positions import NEWEST, OLDEST
from kreplica.admin.peers.leaders import ISOLATIONS, READ_UNCOMMITTED
from kreplica.formats.catalogue import AUTO, TEXT
from kreplica.formats.filters import FILTER_LENGTH_MAX

UTF8, BASE64 = "utf8", "base64"
ENCODING = one_of(UTF8, BASE64)
LIMIT_MAX = 1000
SCANNED_MAX = 1_000_000
SEARCH_LENGTH_MAX = 1000
FORMAT_NAME = {"type": "string", "minLength": 1, "maxLength": 100}

HEADER = record(
    {"key": STRING, "value": nullable(STRING), "encoding": nullable(ENCODING)},
    title="MessageHeader",
)

SCHEMA = record(
    {
        "id": COUNT,
        "subject": {**nullable(STRING), "description": "The topic's subject, if several subjects have this schema."},
        "version": nullable(INTEGER),
        "type": one_of("AVRO", "PROTOBUF", "JSON"),
        "name": {**nullable(STRING), "description": "Name of the record or message in the schema."},
    },
    title="MessageSchema",
)

PART = record(
    {
        "format": {**STRING, "description": "How it was decoded: a name from `GET /v1/formats`; `null` if absent."},
        "value": {"description": "The decoded value; a string for text and hex digits."},
        "size_bytes": COUNT,
        "schema": {**nullable(SCHEMA), "description": "The schema in the registry; null without one."},
        "error": {**nullable(STRING), "description": "Why it could not be decoded; it is then shown as hex."},
        "truncated": {**BOOLEAN, "description": "True if only the first bytes are shown."},
        "base64": {**nullable(STRING), "description": "All bytes, with `raw=true`."},
    },
    title="MessagePart",
    optional=("base64",),
    description="A decoded key or value. Bytes in it are `{\"$base64\": ...}`; integers may exceed 2^53.",
)

CONTROL = record(
    {
        "type": one_of("commit", "abort", "other"),
        "producer_id": INTEGER,
        "producer_epoch": INTEGER,
        "coordinator_epoch": nullable(INTEGER),
    },
    title="ControlRecord",
)

MESSAGE = record(
    {
        "partition": PARTITION,
        "offset": COUNT,
        "timestamp_ms": {**nullable(TIME_MS), "description": "Null if the producer did not set it."},
        "timestamp_type": one_of("create_time", "log_append_time"),
        "key": PART,
        "value": PART,
        "headers": listing(HEADER),
        "size_bytes": {**COUNT, "description": "Size of key, value and headers in bytes."},
        "control": {**nullable(CONTROL), "description": "The transaction marker; null for all other records."},
    },
    title="Message",
)

MESSAGES = record(
    {
        "messages": {
            **listing(MESSAGE),
            "description": "Merged by time across partitions; records of one partition keep their order.",
        },
        "next": {**nullable(STRING), "description": "`after` of the next page; null on the last page."},
        "scanned": {**COUNT, "description": "Number of scanned records, except those that the next page scans again."},
        "remaining": {**COUNT, "description": "Number of offsets that have not been scanned yet."},
        "filter_errors": {**COUNT, "description": "Scanned records for which `filter` failed; they do not match."},
        "filter_error": {**nullable(STRING), "description": "The first failure."},
        "problems": {**listing(STRING), "description": "A sentence for each partition that could not be read."},
    },
    title="Messages",
)

SCHEMA_TO_USE = record(
    {
        "id": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "subject": {"type": "string", "minLength": 1, "maxLength": 1000},
        "version": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2**31 - 1,
            "description": "Version of the subject; the latest one if absent.",
        },
        "message": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "Full name of a Protobuf message; the first one if absent.",
        },
    },
    title="SchemaToUse",
    optional=("id", "subject", "version", "message"),
    description="A schema by its ID, or by a subject.",
)

_PART_FORMAT = {
    **FORMAT_NAME,
    "description": f"A name from `GET /v1/formats`, or `{BASE64}`; default: `{TEXT}`.",
}

BODY = record(
    {
        "partition": {
            **nullable(PARTITION),
            "description": "If absent, chosen by the key as in the Java client; without a key, any partition.",
        },
        "key": {"description": "A string for text, hex and base64; any JSON for other formats. Null: no key."},
        "value": {"description": "Like `key`. Null or absent: no value, which deletes the key in a compacted topic."},
        "key_format": _PART_FORMAT,
        "value_format": _PART_FORMAT,
        "key_schema": SCHEMA_TO_USE,
        "value_schema": SCHEMA_TO_USE,
        "headers": listing(
            record({"key": STRING, "value": nullable(STRING), "encoding": ENCODING}, optional=("value", "encoding")),
            maxItems=1000,
        ),
    },
    title="MessageToWrite",
    optional=("partition", "key", "value", "key_format", "value_format", "key_schema", "value_schema", "headers"),
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

DELETED = written(
    {
        "topic": STRING,
        "partitions": listing(
            record(
                {
                    "partition": PARTITION,
                    "before": {**COUNT, "description": "The log start offset before the deletion."},
                    "after": {**COUNT, "description": "The new log start offset."},
                },
                title="RecordsDeletedInPartition",
            )
        ),
    },
    title="RecordsDeleted",
)

BEFORE = Parameter(
    "before",
    {"type": "string", "pattern": r"^(latest|offset:[0-9]{1,18}|timestamp:[0-9]{1,18})$"},
    "Deletes the records before this position: `latest` (all records), `offset:N`, or `timestamp:MS` (milliseconds "
    "since 1970). Required.",
)

FORMATS = record(
    {
        "formats": listing(
            record(
                {
                    "name": STRING,
                    "description": STRING,
                    "can_encode": {**BOOLEAN, "description": "True if records can be written in this format."},
                    "needs_schema": {**BOOLEAN, "description": "True if it requires a registered schema."},
                },
                title="RecordFormat",
            )
        ),
        "schema_registry": record({"configured": BOOLEAN}),
    },
    title="RecordFormats",
)

ONE_PARTITION = Parameter("partition", PARTITION, "Only this partition.")
SEARCH = Parameter(
    "search",
    {"type": "string", "maxLength": SEARCH_LENGTH_MAX},
    "Only records with this text, ignoring case, in the bytes of the key, the value or a header; "
    "`/expression/` is an RE2 expression. Only the first 64 KiB of each field are searched.",
)
FILTER = Parameter(
    "filter",
    {"type": "string", "maxLength": FILTER_LENGTH_MAX},
    "Only records for which this CEL expression is true, such as `value.total > 100`. Variables: `key`, `value` "
    "(decoded), `headers`, `timestamp` (milliseconds since 1970), `timestamp_type`, `offset`, `partition`.",
)
KEY_FORMAT = Parameter("key_format", FORMAT_NAME, f"Format of keys: `{AUTO}`, or a name from `GET /v1/formats`.", AUTO)
VALUE_FORMAT = Parameter("value_format", FORMAT_NAME, "Format of values, like `key_format`.", AUTO)
RAW = Parameter("raw", BOOLEAN, "True to add all bytes of keys and values, in base64.", default=False)
CONTROL_RECORDS = Parameter("control_records", BOOLEAN, "True to include transaction markers.", default=False)
ISOLATION = Parameter(
    "isolation", one_of(*ISOLATIONS), "Whether uncommitted records are included.", default=READ_UNCOMMITTED
)
SELECTION = (ONE_PARTITION, SEARCH, FILTER, KEY_FORMAT, VALUE_FORMAT, RAW, CONTROL_RECORDS, ISOLATION)

ORDER = Parameter(
    "order",
    one_of(OLDEST, NEWEST),
    "Order of the records, merged by time across all partitions: the oldest or the newest first.",
    default=OLDEST,
)
FROM = Parameter(
    "from",
    {"type": "string", "pattern": r"^(earliest|latest|offset:[0-9]{1,18}|timestamp:[0-9]{1,18})$"},
    "Start: `earliest`; `latest` (the last records); `offset:N`; `timestamp:MS` (milliseconds since 1970). With "
    "`order=newest`, records at this position and older ones. Default: `earliest`, or `latest` with `order=newest`.",
)
AFTER = Parameter("after", STRING, "`next` of the previous response; `from` is then ignored.")
LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "Maximum number of records.", default=100
)
SCAN_LIMIT = Parameter(
    "scan_limit",
    {"type": "integer", "minimum": 1, "maximum": SCANNED_MAX},
    "Maximum number of records to scan. A scan stops after three seconds; `next` continues it.",
    default=20_000,
)

FILE_TYPE = Parameter(
    "as", one_of(NDJSON, CSV), "Type of the file: one `Message` per line as JSON, or rows of text.", default=NDJSON
)
DOWNLOAD_LIMIT = Parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": SCANNED_MAX},
    "Maximum number of records in the file.",
    default=10_000,
)
