"""Formats with a schema registry: data from Confluent's serializers, references, failures and mutations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from kreplica.admin.messages.fetching import SCHEMAS_PER_CHUNK_MAX, ChunkFetcher, TopicQuery
from kreplica.admin.messages.positions import Span
from kreplica.admin.messages.scanning import ScanLimits, Selection
from kreplica.admin.messages.tailing import ROUND_LIMITS
from kreplica.blocking.coroutines import run
from kreplica.cli.records.formats import RecordFormats, RegistryAccess
from kreplica.errors import SettingsError
from kreplica.formats.catalogue import AUTO, Formats
from kreplica.formats.compiled_schemas import compiled_once
from kreplica.formats.json_schema_format import JsonSchemaFormat
from kreplica.formats.messages import RecordView
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.formats.registry import SchemaRegistry, registry_options
from kreplica.formats.schema_store import FAILURE_SECONDS, SchemaStore
from kreplica.interfaces.formats import FormatContext, FormatError, Place, RegisteredSchema, SchemaNotLoaded
from kreplica.security.oauth.token_requests import HttpResponse
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record
from tests.support.schema_registry import TestRegistry

VALUE = Place("orders", False, None)

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "image", "type": ["null", "bytes"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
        {"name": "items", "type": {"type": "array", "items": ["string", "int"]}, "default": []},
        {"name": "ship_to", "type": ["null", "shop.Address"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
DOCUMENT = {
    "id": 2**60,
    "total": "12.50",
    "at": "2027-01-31T08:30:00+00:00",
    "image": {"$base64": "AP8="},
    "tags": {"a": "b"},
    "items": ["tea", 7],
    "ship_to": {"city": "Ulm"},
    "state": "PAID",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[TestRegistry]:
    with TestRegistry("reader:secret") as running:
        yield running


@pytest.fixture
def formats(registry: TestRegistry) -> RecordFormats:
    return RecordFormats(RegistryAccess(registry.url, "reader:secret", None))


def decode(formats: RecordFormats, data: bytes, chosen: str = AUTO, place: Place = VALUE) -> Any:
    """Decode data, loading schemas as readers of records do."""
    while True:
        try:
            return formats.formats.part(data, place, chosen, with_base64=False)
        except SchemaNotLoaded as error:
            run(formats.schemas.load(error.schema_id))


def registry_client(registry: TestRegistry) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "reader:secret"})


def context(topic: str = "orders") -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)


# --- Confluent's serializers -----------------------------------------------------------------------------------------


def test_avro_serializer(registry: TestRegistry, formats: RecordFormats) -> None:
    """Data from the Avro serializer is decoded, and the deserializer reads data encoded by kreplica."""
    from datetime import UTC, datetime
    from decimal import Decimal

    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    registry.register("address", json.dumps(ADDRESS))
    schema = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Address", "address", 1)])
    order = {
        **DOCUMENT,
        "total": Decimal("12.50"),
        "at": datetime(2027, 1, 31, 8, 30, tzinfo=UTC),
        "image": b"\x00\xff",
    }
    data = AvroSerializer(registry_client(registry), schema)(order, context())
    part = decode(formats, data)
    assert (part["format"], part["value"], part["error"]) == ("avro", DOCUMENT, None)
    assert part["schema"] == {
        "id": part["schema"]["id"],
        "subject": "orders-value",
        "version": 1,
        "type": "AVRO",
        "name": "shop.Order",
    }
    encoded = formats.encode("avro", DOCUMENT, None, "orders-value", None)
    assert encoded == data
    assert AvroDeserializer(registry_client(registry), schema)(encoded, context()) == order


def test_protobuf_serializer(registry: TestRegistry, formats: RecordFormats) -> None:
    """Data from the Protobuf serializer is decoded, and the deserializer reads data encoded by kreplica."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    message_class = protobuf_message("shop.Basket.Item")
    message = message_class(name="tea", count=2**60, image=b"\x00\xff", state=1, tags={"a": 1}, prices=[1.5, 2.0])
    message.at.FromJsonString("2027-01-31T08:30:00Z")
    serializer = ProtobufSerializer(message_class, registry_client(registry), {"use.deprecated.format": False})
    data = serializer(message, context("baskets"))
    part = decode(formats, data, place=Place("baskets", False, None))
    value = {
        "name": "tea",
        "count": 2**60,
        "image": {"$base64": "AP8="},
        "state": "PAID",
        "tags": {"a": 1},
        "prices": [1.5, 2.0],
        "at": "2027-01-31T08:30:00Z",
    }
    assert (part["format"], part["value"], part["error"]) == ("protobuf", value, None)
    assert (part["schema"]["subject"], part["schema"]["name"]) == ("baskets-value", "shop.Basket.Item")
    encoded = formats.encode("protobuf", value, None, "baskets-value", "shop.Basket.Item")
    deserializer = ProtobufDeserializer(message_class, {"use.deprecated.format": False})
    assert deserializer(encoded, context("baskets")) == message
    with pytest.raises(FormatError, match=r"the schema has no message 'shop\.Cart'; it has: shop\.Order, shop\.Basket"):
        formats.encode("protobuf", value, None, "baskets-value", "shop.Cart")
    with pytest.raises(FormatError, match='no field named "title"'):
        formats.encode("protobuf", {"title": "x"}, None, "baskets-value", "shop.Basket.Item")


def protobuf_message(name: str) -> Any:
    """Return the class of a message in a file with several messages, built without a compiler."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import Default
    from google.protobuf.message_factory import GetMessageClass
    from google.protobuf.timestamp_pb2 import DESCRIPTOR as timestamp_file

    pool = Default()
    try:
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        pass
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3", dependency=[timestamp_file.name])
    file.message_type.add(name="Order").field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    basket = file.message_type.add(name="Basket")
    item = basket.nested_type.add(name="Item")
    state = item.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    entry = item.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    entry.field.add(name="value", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    optional, repeated = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
    for number, (field, kind, label, type_name) in enumerate(
        [
            ("name", "TYPE_STRING", optional, None),
            ("count", "TYPE_INT64", optional, None),
            ("image", "TYPE_BYTES", optional, None),
            ("state", "TYPE_ENUM", optional, ".shop.Basket.Item.State"),
            ("tags", "TYPE_MESSAGE", repeated, ".shop.Basket.Item.TagsEntry"),
            ("prices", "TYPE_DOUBLE", repeated, None),
            ("at", "TYPE_MESSAGE", optional, ".google.protobuf.Timestamp"),
        ],
        1,
    ):
        item.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


PROTO_TEXT = """
syntax = "proto3";
package shop.text;
import "google/protobuf/timestamp.proto";
import "common/money.proto";
option java_package = "shop";
message Basket {
  message Item {
    enum State { option allow_alias = true; NEW = 0; PAID = 1; DONE = 1; }
    string name = 1; // a comment
    int64 count = 2;
    bytes image = 3;
    State state = 4;
    map<string, int32> tags = 5;
    repeated double prices = 6 [packed = false];
    google.protobuf.Timestamp at = 7;
    optional int32 discount = 8;
    oneof payment { string card = 9; Money cash = 10; }
    reserved 11, 20 to 30;
  }
  repeated Item items = 1;
}
service Shop { rpc Buy(Basket) returns (Basket); }
"""


def test_protobuf_source_text(registry: TestRegistry, formats: RecordFormats) -> None:
    """If the registry returns the text of a schema, it is compiled with its references."""
    money = 'syntax = "proto3"; package shop.text; message Money { int64 cents = 1; }'
    registry.register("money", money, "PROTOBUF")
    references = [{"name": "common/money.proto", "subject": "money", "version": 1}]
    registry.register("texts-value", PROTO_TEXT, "PROTOBUF", references)
    item = {
        "name": "tea",
        "count": 2**60,
        "image": {"$base64": "AP8="},
        "state": "PAID",
        "tags": {"a": 1},
        "prices": [1.5, 2.0],
        "at": "2027-01-31T08:30:00Z",
        "discount": 0,
        "cash": {"cents": 7},
    }
    data = formats.encode("protobuf", {"items": [item]}, None, "texts-value", None)
    assert decode(formats, data)["value"] == {"items": [item]}
    data = formats.encode("protobuf", {}, None, "texts-value", "shop.text.Basket.Item")
    assert decode(formats, data)["value"] == {
        "name": "",
        "count": 0,
        "image": {"$base64": ""},
        "state": "NEW",
        "tags": {},
        "prices": [],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; message {', "line 1, column 28: "),
        ("message A { optional group B = 1 { optional int32 c = 1; } }", "groups are not supported"),
        ('edition = "2023"; message A {}', "edition 2023 is not supported"),
        ('syntax = "proto3"; message A { Missing b = 1; }', ""),
        ('syntax = "proto3"; import "other.proto"; message A {}', "imports other.proto, which is not among"),
        ("/*" + "x" * 70_000 + "*/", "the schema's text is longer than 65,536 characters"),
    ],
    ids=lambda value: value[:40],
)
def test_invalid_protobuf_text(registry: TestRegistry, formats: RecordFormats, text: str, reason: str) -> None:
    schema_id = registry.register("invalid", text, "PROTOBUF")
    part = decode(formats, b"\x00" + schema_id.to_bytes(4, "big") + b"\x00", "protobuf")
    assert part["format"] == "hex"
    assert part["error"].startswith(f"protobuf: schema {schema_id} is not a valid Protobuf schema: {reason}")


PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "address": {"$ref": "address.json"},
    },
    "required": ["name"],
}


def test_json_serializer(registry: TestRegistry, formats: RecordFormats) -> None:
    """Data from the JSON serializer is decoded, and the deserializer reads data encoded by kreplica."""
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    city = {"$id": "address.json", "type": "object", "properties": {"city": {"type": "string"}}}
    registry.register("address-json", json.dumps(city), "JSON")
    schema = Schema(json.dumps(PERSON), "JSON", [SchemaReference("address.json", "address-json", 1)])
    person = {"name": "Ada", "address": {"city": "Ulm"}}
    data = JSONSerializer(schema, registry_client(registry))(person, context("people"))
    part = decode(formats, data, place=Place("people", False, None))
    assert (part["format"], part["value"], part["schema"]["name"]) == ("json-schema", person, "Person")
    encoded = formats.encode("json-schema", person, None, "people-value", None)
    assert (
        JSONDeserializer(schema, schema_registry_client=registry_client(registry))(encoded, context("people")) == person
    )
    for wrong, reason in (
        ({"name": 5}, "value.name: 5 is not of type 'string'"),
        ({"name": "ada"}, "value.name: 'ada' does not match"),
        ({"name": "Ada", "address": {"city": 5}}, "value.address.city: 5 is not of type 'string'"),
        ({}, "value: 'name' is a required property"),
    ):
        with pytest.raises(FormatError) as refused:
            formats.encode("json-schema", wrong, None, "people-value", None)
        assert str(refused.value).startswith(reason)


BACKTRACKING = "^(a|a)*$"
"""Pattern that takes exponential time in Python's ``re``."""


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"]
)
def test_patterns_of_parts_with_dialect(dialect: str) -> None:
    """Patterns in definitions and references are matched in linear time, even if these have ``$schema``."""
    part = {"$schema": dialect, "type": "string", "pattern": BACKTRACKING}
    inner = {"definitions": {"a": part}, "$ref": "#/definitions/a"}
    outer = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "part.json"}
    reference = RegisteredSchema(1, "JSON", json.dumps(part))
    for schema in (
        RegisteredSchema(2, "JSON", json.dumps(inner)),
        RegisteredSchema(3, "JSON", json.dumps(outer), references={"part.json": reference}),
    ):
        encoder = JsonSchemaFormat(FormatContext("json-schema", {}, SchemaStore(lambda: 0.0, has_registry=True)))
        encoder.encode("aaa", schema, None)
        started_s = time.perf_counter()
        with pytest.raises(FormatError, match="does not match"):
            encoder.encode("a" * 25 + "b", schema, None)
        assert time.perf_counter() - started_s < 1  # about 5 s with backtracking


def test_pattern_properties() -> None:
    """``patternProperties`` is refused, in references as well, but other texts may contain the word."""
    encoder = JsonSchemaFormat(FormatContext("json-schema", {}, SchemaStore(lambda: 0.0, has_registry=True)))
    described = RegisteredSchema(1, "JSON", json.dumps({"description": "without patternProperties"}))
    assert encoder.encode({}, described, None) == b"\x00\x00\x00\x00\x01{}"
    part = RegisteredSchema(2, "JSON", json.dumps({"items": [{"patternProperties": {BACKTRACKING: True}}]}))
    schema = RegisteredSchema(3, "JSON", json.dumps({"$ref": "part.json"}), references={"part.json": part})
    for each in (part, schema, schema):
        with pytest.raises(FormatError, match="patternProperties is not supported"):
            encoder.encode({}, each, None)


def test_schemas_are_compiled_once() -> None:
    """The result or the error of a compilation is cached."""
    calls = []

    def build(schema: RegisteredSchema) -> None:
        calls.append(schema.schema_id)
        if schema.schema_id == 2:
            raise FormatError("invalid")

    for schema in (RegisteredSchema(1, "JSON", "{}"), RegisteredSchema(2, "JSON", "{")):
        for _ in range(2):
            with pytest.raises(FormatError, match="invalid") if schema.schema_id == 2 else nullcontext():
                compiled_once(schema, "form", build)
    assert calls == [1, 2]


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({**DOCUMENT, "id": "x"}, "shop.Order.id is <x> of type"),
        ({**DOCUMENT, "ship_to": {"town": "Ulm"}}, "value.ship_to.town: the record shop.Address has no such field"),
        ({key: DOCUMENT[key] for key in DOCUMENT if key != "id"}, "value.id: the field is missing"),
        ({**DOCUMENT, "at": "yesterday"}, "value.at: 'yesterday' is not a valid timestamp-millis"),
        ({**DOCUMENT, "state": "LOST"}, "shop.Order.state is <LOST>"),
        ([], "value: expected an object"),
    ],
)
def test_values_that_do_not_fit(registry: TestRegistry, formats: RecordFormats, value: Any, reason: str) -> None:
    """The error names the field."""
    registry.register("address", json.dumps(ADDRESS))
    references = [{"name": "shop.Address", "subject": "address", "version": 1}]
    registry.register("strict-value", json.dumps(ORDER), "AVRO", references)
    with pytest.raises(FormatError) as refused:
        formats.encode("avro", value, None, "strict-value", None)
    assert reason in str(refused.value)


def test_unknown_schemas(registry: TestRegistry, formats: RecordFormats) -> None:
    """The reason is shown, and the failure is cached, so that the registry is not queried for each record."""
    data = b"\x00\x00\x00\xff\xff" + b"x"
    for _ in range(3):
        part = decode(formats, data)
        assert (part["format"], part["error"]) == ("hex", "the schema registry does not have schema 65535")
    assert registry.requests.count("/schemas/ids/65535") == 1
    with pytest.raises(FormatError, match="the schema registry does not have subject no such/subject"):
        formats.encode("avro", {}, None, "no such/subject", None)
    assert "/subjects/no%20such%2Fsubject/versions/latest" in registry.requests


def test_missing_credentials(registry: TestRegistry) -> None:
    """The error contains the status; neither errors nor representations contain the password."""
    formats = RecordFormats(RegistryAccess(registry.url, "reader:wrong-password", None))
    part = decode(formats, b"\x00\x00\x00\x00\x01x")
    assert part["error"] == "the schema registry returned status 401 for schema 1: credentials are missing"
    options = registry_options("http://reader:secret@127.0.0.1:8081/", None)
    assert "secret" not in repr(options)
    assert (options.url, options.user_info) == ("http://127.0.0.1:8081", "reader:secret")
    assert "secret" not in repr(RegistryAccess(registry.url, "reader:secret", None))


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://", "http://h:99999", "http://h/?a=b", "file:///etc/passwd"])
def test_invalid_urls(url: str) -> None:
    with pytest.raises(SettingsError, match="must have the form"):
        registry_options(url, None)


def test_registry_without_response() -> None:
    """A registry that does not respond is not queried again for a while, even for other schemas."""
    now = [0.0]
    sent = []

    async def exchange(request: Any) -> Any:
        from kreplica.blocking.http_exchange import HttpFailed

        sent.append(request.url)
        raise HttpFailed("http://registry: connection refused")

    store = SchemaStore(lambda: now[0], has_registry=True)
    registry = SchemaRegistry(registry_options("http://registry", None), store, exchange, lambda: now[0])
    for schema_id in (1, 2):
        run(registry.load(schema_id))
        with pytest.raises(FormatError, match="does not respond: http://registry: connection refused"):
            store.by_id(schema_id)
    assert sent == ["http://registry/schemas/ids/1"]
    now[0] = FAILURE_SECONDS
    with pytest.raises(SchemaNotLoaded):
        store.by_id(1)


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"true"])
def test_response_without_object(body: bytes) -> None:
    """A response that is not a JSON object is the reason why the schema is not available."""

    async def exchange(request: Any) -> Any:
        return HttpResponse(200, body)

    store = SchemaStore(lambda: 0.0, has_registry=True)
    registry = SchemaRegistry(registry_options("http://registry", None), store, exchange, lambda: 0.0)
    run(registry.load(1))
    with pytest.raises(FormatError, match="the schema registry did not return a JSON object for schema 1"):
        store.by_id(1)
    with pytest.raises(FormatError, match="the schema registry did not return a JSON object for subject orders-value"):
        run(registry.by_subject("orders-value", None))


def test_schemas_in_memory_are_bounded() -> None:
    """The least recently used schema and the oldest failure are dropped."""
    store = SchemaStore(lambda: 0.0, has_registry=True, schemas_max=3)
    for schema_id in (1, 2, 3):
        store.add(RegisteredSchema(schema_id, "AVRO", '"int"'))
    assert store.by_id(1).schema_id == 1
    store.add(RegisteredSchema(4, "AVRO", '"int"'))
    with pytest.raises(SchemaNotLoaded):
        store.by_id(2)
    assert [store.by_id(schema_id).schema_id for schema_id in (1, 3, 4)] == [1, 3, 4]
    for schema_id in range(10, 14):
        store.add_failure(schema_id, "missing")
    with pytest.raises(SchemaNotLoaded):
        store.by_id(10)
    with pytest.raises(FormatError, match="missing"):
        store.by_id(13)


class SlowSource:
    """Loads a schema when ``respond`` is called."""

    def __init__(self, store: SchemaStore) -> None:
        self.requested_ids: list[int] = []
        self._store = store
        self._waiting: list[Deferred[None]] = []

    async def load(self, schema_id: int) -> None:
        self.requested_ids.append(schema_id)
        self._waiting.append(Deferred())
        await self._waiting[-1]
        self._store.add(RegisteredSchema(schema_id, "AVRO", '"int"'))

    async def by_subject(self, subject: str, version: int | None) -> RegisteredSchema:
        raise AssertionError

    def respond(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)


def test_one_request_for_concurrent_readers() -> None:
    """Readers that need the same schema share one request; cancelling one of them does not affect the others."""
    store = SchemaStore(lambda: 0.0, has_registry=True)
    source = SlowSource(store)
    schemas = RecordSchemas(store, source)
    done: list[str] = []
    readers = [Deferred.fromCoroutine(schemas.load(7)) for _ in range(3)]
    readers[1].addErrback(lambda failure: failure.trap(CancelledError))
    for number in (0, 2):
        readers[number].addCallback(lambda _, number=number: done.append(f"reader {number}"))
    readers[1].cancel()
    assert (source.requested_ids, done) == ([7], [])
    source.respond()
    assert sorted(done) == ["reader 0", "reader 2"]
    assert store.by_id(7).schema_id == 7


def test_first_reader_is_cancelled() -> None:
    """The first reader's request continues for the other readers; without readers it is cancelled."""
    store = SchemaStore(lambda: 0.0, has_registry=True)
    source = SlowSource(store)
    schemas = RecordSchemas(store, source)
    first, second = (Deferred.fromCoroutine(schemas.load(7)) for _ in range(2))
    first.addErrback(lambda failure: failure.trap(CancelledError))
    first.cancel()
    source.respond()
    assert second.called
    assert (source.requested_ids, store.by_id(7).schema_id) == ([7], 7)
    only = Deferred.fromCoroutine(schemas.load(8))
    only.addErrback(lambda failure: failure.trap(CancelledError))
    only.cancel()
    again = Deferred.fromCoroutine(schemas.load(8))
    source.respond()
    assert again.called
    assert (source.requested_ids, store.by_id(8).schema_id) == ([7, 8, 8], 8)


@pytest.mark.parametrize(
    ("limits", "found"),
    [(ScanLimits(matches=1000, records=1000, match_bytes=1 << 20), 600), (ROUND_LIMITS, 500)],
    ids=["page", "tail"],
)
def test_schema_loads_are_bounded(limits: ScanLimits, found: int) -> None:
    """Records with more unknown IDs than the store holds cause a limited number of requests and scans."""

    class Missing:
        loads = 0

        async def load(self, schema_id: int) -> None:
            self.loads += 1
            store.add_failure(schema_id, "missing")

    class Inline:
        runs = 0

        async def run(self, function: Any, *arguments: Any) -> Any:
            self.runs += 1
            assert self.runs <= SCHEMAS_PER_CHUNK_MAX + 1
            return function(*arguments)

    store = SchemaStore(lambda: 0.0, has_registry=True)
    rows = [Record(number, 0, None, b"\x00" + (number + 1).to_bytes(4, "big")) for number in range(600)]
    schemas = Missing()
    fetcher = ChunkFetcher(None, Inline(), schemas)  # type: ignore[arg-type]
    topic = TopicQuery("orders", UUID(int=1), 0, Selection(RecordView(Formats(store), "orders")))
    row = {"partition_index": 0, "records": build_batch(rows), "aborted_transactions": None}
    scanned = run(fetcher._scan(topic, row, Span(0, 1000), limits))
    assert (len(scanned.found), schemas.loads) == (found, SCHEMAS_PER_CHUNK_MAX)
    errors = [each["value"]["error"] for each in scanned.found]
    assert errors[:SCHEMAS_PER_CHUNK_MAX] == ["missing"] * SCHEMAS_PER_CHUNK_MAX
    assert errors[-1] == f"schema {found} is not loaded: too many schemas in these records"
    with pytest.raises(SchemaNotLoaded):  # the next page loads it
        store.by_id(found)


# --- malicious data --------------------------------------------------------------------------------------------------

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}


@pytest.mark.parametrize(
    ("schema", "content", "reason"),
    [
        (NODE, b"\x02" * 1_000_000, "nested too deeply"),
        (NODE, b"\xff" * 1_000_000, "an integer is too long"),
        (NULLS, b"\xfe\xff\xff\xff\x0f", "array of items that need no bytes"),
        (EMPTY, b"\xfe\xff\xff\xff\x0f", "array of items that need no bytes"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", "does not match schema"),
        ("string", b"\xfe\xff\xff\xff\x0f", "does not match schema"),
        ("bytes", b"\x01", "does not match schema"),
        ("int", b"\x02\x02", "1 bytes follow the value"),
        ({"type": "unknown"}, b"", "is not a valid Avro schema"),
        ({"type": "record", "fields": []}, b"", "is not a valid Avro schema"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_malicious_avro(
    registry: TestRegistry, formats: RecordFormats, schema: Any, content: bytes, reason: str
) -> None:
    """Malicious data is refused in bounded time and memory."""
    schema_id = registry.register("malicious", json.dumps(schema))
    part = decode(formats, b"\x00" + schema_id.to_bytes(4, "big") + content)
    assert part["format"] == "hex"
    assert reason in part["error"]


@pytest.fixture(scope="module")
def samples(registry: TestRegistry) -> tuple[RecordFormats, list[bytes]]:
    formats = RecordFormats(RegistryAccess(registry.url, "reader:secret", None))
    registry.register("address", json.dumps(ADDRESS))
    references = [{"name": "shop.Address", "subject": "address", "version": 1}]
    registry.register("orders-value", json.dumps(ORDER), "AVRO", references)
    registry.register("node-value", json.dumps(NODE))
    registry.register("people-value", json.dumps({**PERSON, "properties": {}}), "JSON")
    from base64 import b64encode

    file = protobuf_message("shop.Basket.Item").DESCRIPTOR.file
    registry.register("baskets-value", b64encode(file.serialized_pb).decode(), "PROTOBUF")
    item = {"name": "tea", "tags": {"a": 1}, "prices": [1.5], "at": "2027-01-31T08:30:00Z"}
    return formats, [
        formats.encode("avro", DOCUMENT, None, "orders-value", None),
        formats.encode("avro", {"next": {"next": None}}, None, "node-value", None),
        formats.encode("protobuf", item, None, "baskets-value", "shop.Basket.Item"),
        formats.encode("json-schema", {"name": "Ada"}, None, "people-value", None),
    ]


@given(st.integers(0, 3), st.data())
def test_mutated_data(samples: tuple[RecordFormats, list[bytes]], index: int, data: st.DataObject) -> None:
    """Every input has a result or a reason; formats raise no other exceptions."""
    formats, contents = samples
    mutated = bytearray(contents[index])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(5, len(mutated)))
        mutated[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    found = decode(formats, bytes(mutated))
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    assert found["format"] in ("avro", "protobuf", "json-schema", "hex")
    assert "the format failed" not in (found["error"] or "")


def test_formats_without_registry() -> None:
    formats = Formats(SchemaStore(lambda: 0.0, has_registry=False))
    part = formats.part(b"\x00\x00\x00\x00\x01x", VALUE, "avro", with_base64=False)
    assert part["error"] == "avro: requires schema 1, but no schema registry is configured"
