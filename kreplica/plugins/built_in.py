"""Built-in plugins; ``racks``, ``assigned`` and ``allow-all`` are part of the broker instead."""

from kreplica.formats.built_in import (
    avro,
    cbor,
    group_record,
    hexadecimal,
    json,
    json_schema,
    msgpack,
    protobuf,
    text,
    transaction_record,
)
from kreplica.interfaces import IExtraListener, IMetricsReporter, IProduceInterceptor, Plugin

__all__ = [
    "agent_check",
    "avro",
    "cbor",
    "group_record",
    "hexadecimal",
    "json",
    "json_schema",
    "log_reporter",
    "msgpack",
    "protobuf",
    "required_headers",
    "text",
    "transaction_record",
]

_PLACE = "kreplica.service.plugins"

agent_check = Plugin(
    "agent-check",
    IExtraListener,
    f"{_PLACE}.agent_check:AgentCheck",
    "Reports to load balancers (HAProxy's agent-check) whether this broker can serve clients.",
    {"listen": "Address to listen on, as host:port; default: 127.0.0.1:0."},
)

log_reporter = Plugin(
    "log",
    IMetricsReporter,
    f"{_PLACE}.log_reporter:LogReporter",
    "Writes selected metrics to the log.",
    {"names": "Names of the metrics, separated by commas; a trailing * matches any suffix."},
)

required_headers = Plugin(
    "required-headers",
    IProduceInterceptor,
    f"{_PLACE}.required_headers:RequiredHeaders",
    "Rejects records that lack a required header.",
    {
        "headers": "Names of the required headers, separated by commas.",
        "topics": "Topics, separated by commas; a trailing * matches any suffix; default: all topics.",
    },
)
