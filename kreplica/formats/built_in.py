"""The built-in formats, in the order in which they are tried automatically."""

from __future__ import annotations

from kreplica.interfaces import Plugin
from kreplica.interfaces.formats import IRecordFormat

_PLACE = "kreplica.formats"

group_record = Plugin(
    "group-record",
    IRecordFormat,
    "kreplica.groups.record_format:GroupRecordFormat",
    "Records of __consumer_offsets: committed offsets and groups.",
)
transaction_record = Plugin(
    "transaction-record",
    IRecordFormat,
    "kreplica.transactions.record_format:TransactionRecordFormat",
    "Records of __transaction_state.",
)
avro = Plugin("avro", IRecordFormat, f"{_PLACE}.avro_format:AvroFormat", "Avro with a registered schema.")
protobuf = Plugin(
    "protobuf", IRecordFormat, f"{_PLACE}.protobuf_format:ProtobufFormat", "Protobuf with a registered schema."
)
json_schema = Plugin(
    "json-schema",
    IRecordFormat,
    f"{_PLACE}.json_schema_format:JsonSchemaFormat",
    "JSON with a registered JSON Schema.",
)
json = Plugin("json", IRecordFormat, f"{_PLACE}.json_format:JsonFormat", "JSON without a schema.")
cbor = Plugin("cbor", IRecordFormat, f"{_PLACE}.cbor_format:CborFormat", "CBOR (RFC 8949).")
msgpack = Plugin("msgpack", IRecordFormat, f"{_PLACE}.msgpack_format:MsgpackFormat", "MessagePack.")
text = Plugin("text", IRecordFormat, f"{_PLACE}.text_format:TextFormat", "Text in UTF-8 without control characters.")
hexadecimal = Plugin("hex", IRecordFormat, f"{_PLACE}.hex_format:HexFormat", "Hexadecimal digits of the bytes.")

FORMATS = (group_record, transaction_record, avro, protobuf, json_schema, json, cbor, msgpack, text, hexadecimal)
