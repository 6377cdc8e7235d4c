"""Reads pushed metrics: OpenTelemetry's ``MetricsData`` in Protobuf, compressed.

The schema contains only the fields that Kafka clients send: gauges, sums, and attributes with simple values.  It has no
recursion, and no generated code has to be installed.  Functions of this module run in a thread, because the first call
imports the Protobuf library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any, NamedTuple

from kreplica.errors import KreplicaError
from kreplica.wire.compression import decompress

ROWS_MAX = 2000
"""Maximum number of values shown per push."""

TEXT_MAX = 300
"""Maximum number of characters shown of a name or attribute."""

ATTRIBUTES_MAX = 20
"""Maximum number of attributes shown per value."""

_NANOS_PER_MS = 1_000_000

_MESSAGES: Mapping[str, Sequence[tuple[str, int, str]]] = {
    "MetricsData": [("resource_metrics", 1, "ResourceMetrics*")],
    "ResourceMetrics": [("resource", 1, "Resource"), ("scope_metrics", 2, "ScopeMetrics*")],
    "Resource": [("attributes", 1, "KeyValue*")],
    "ScopeMetrics": [("metrics", 2, "Metric*")],
    "Metric": [("name", 1, "bytes"), ("unit", 3, "bytes"), ("gauge", 5, "Points"), ("sum", 7, "Points")],
    "Points": [("data_points", 1, "Point*"), ("aggregation_temporality", 2, "int32"), ("is_monotonic", 3, "bool")],
    "Point": [
        ("time_unix_nano", 3, "fixed64"),
        ("as_double", 4, "double"),
        ("as_int", 6, "sfixed64"),
        ("attributes", 7, "KeyValue*"),
    ],
    "KeyValue": [("key", 1, "bytes"), ("value", 2, "Value")],
    "Value": [
        ("string_value", 1, "bytes"),
        ("bool_value", 2, "bool"),
        ("int_value", 3, "int64"),
        ("double_value", 4, "double"),
    ],
}
"""Fields of each message: name, number and type; ``*`` for repeated fields.

Strings have the type ``bytes``, whose encoding is the same, so that invalid UTF-8 cannot make a value unreadable.
"""


class InvalidTelemetry(KreplicaError):
    """A push is not valid Protobuf."""


class MetricValue(NamedTuple):
    """One value of a metric.

    :param kind: ``gauge``, or ``sum`` for a total.
    :param value: None if it is not a number.
    :param at_ms: time of the measurement in milliseconds since 1970; 0 if it is not known.
    """

    name: str
    kind: str
    unit: str
    attributes: Mapping[str, str]
    value: float | None
    at_ms: int


class PushedMetrics(NamedTuple):
    """The metrics of one push.

    :param labels: attributes of the whole client, such as its group.
    :param values: at most ``ROWS_MAX``, sorted by name.
    :param is_complete: False if there are more values.
    """

    labels: Mapping[str, str]
    values: Sequence[MetricValue]
    is_complete: bool


def count_metrics(codec: int, data: bytes, size_max: int) -> int:
    """Return the number of metrics in a push.

    :param codec: a ``Codec``.
    :param size_max: maximum decompressed size in bytes.
    :raise DecompressedTooLarge: the decompressed data exceeds ``size_max``.
    :raise ProtocolError: the data cannot be decompressed.
    :raise InvalidTelemetry: the decompressed data is not valid Protobuf.
    """
    parsed = _parse(codec, data, size_max)
    return sum(len(scope.metrics) for resource in parsed.resource_metrics for scope in resource.scope_metrics)


def read_metrics(codec: int, data: bytes, size_max: int) -> PushedMetrics:
    """Return the metrics of a push; errors are those of ``count_metrics``."""
    parsed = _parse(codec, data, size_max)
    labels: dict[str, str] = {}
    values: list[MetricValue] = []
    is_complete = True
    for resource in parsed.resource_metrics:
        labels |= _attributes(resource.resource.attributes)
        for value in _values(resource):
            if len(values) == ROWS_MAX:
                is_complete = False
                break
            values.append(value)
    values.sort(key=lambda each: (each.name, sorted(each.attributes.items())))
    return PushedMetrics(labels, values, is_complete)


def _values(resource: Any) -> Iterator[MetricValue]:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for kind in ("gauge", "sum"):
                for point in getattr(metric, kind).data_points:
                    yield MetricValue(
                        _text(metric.name),
                        kind,
                        _text(metric.unit),
                        _attributes(point.attributes),
                        _number(point),
                        point.time_unix_nano // _NANOS_PER_MS,
                    )


def _number(point: Any) -> float | None:
    if point.HasField("as_int"):
        return int(point.as_int)
    return float(point.as_double) if point.HasField("as_double") and isfinite(point.as_double) else None


def _attributes(rows: Any) -> dict[str, str]:
    return {_text(row.key): _simple(row.value) for row in rows[:ATTRIBUTES_MAX]}


def _simple(value: Any) -> str:
    if value.HasField("string_value"):
        return _text(value.string_value)
    if value.HasField("bool_value"):
        return "true" if value.bool_value else "false"
    number = next((name for name in ("int_value", "double_value") if value.HasField(name)), None)
    return "" if number is None else str(getattr(value, number))


def _text(data: bytes) -> str:
    return data[: 4 * TEXT_MAX].decode(errors="replace")[:TEXT_MAX]


def _parse(codec: int, data: bytes, size_max: int) -> Any:
    from google.protobuf.message import DecodeError

    content = decompress(codec, data, size_max)
    try:
        return _metrics_data().FromString(content)
    except DecodeError as error:
        raise InvalidTelemetry(f"the metrics are not in OpenTelemetry's format: {error}") from None


@cache
def _metrics_data() -> Any:
    """Return the class of ``MetricsData``."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="client_metrics.proto", package="client_metrics")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind in fields:
            of = kind.removesuffix("*")
            field = message.field.add(name=name, number=number)
            repeated = kind.endswith("*")
            field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            if of in _MESSAGES:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".client_metrics.{of}"
            else:
                field.type = getattr(FieldDescriptorProto, f"TYPE_{of.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("client_metrics.MetricsData"))
