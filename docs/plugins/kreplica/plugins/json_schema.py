"""Produce interceptor that rejects records whose value does not match the JSON Schema of their topic.

kreplica.produce.interceptors=json-schema
kreplica.plugin.json-schema.directory=/etc/kreplica/schemas

``orders.json`` in this directory is the schema of the topic ``orders``.  Records of topics without a schema and records
without a value (tombstones) are accepted.  Schemas are read once, when the broker starts.
"""

from __future__ import annotations

import json
from typing import Any

from zope.interface import implementer

from kreplica.interfaces import IProduceInterceptor, Plugin, PluginContext, ProducedBatch, RejectBatch

SUFFIX = ".json"

json_schema = Plugin(
    "json-schema",
    IProduceInterceptor,
    "kreplica.plugins.json_schema:JsonSchemas",
    "Rejects records whose value does not match the JSON Schema of their topic.",
    {"directory": "The directory of the schemas, with one file TOPIC.json per topic."},
)


@implementer(IProduceInterceptor)
class JsonSchemas:
    """Validates values.

    :ivar topics: topics with a schema.
    """

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: the directory does not exist or contains an invalid schema."""
        from jsonschema import Draft202012Validator

        directory = context.settings.get("directory", "")
        disk = context.runtime.disk
        if not directory or not disk.is_directory(directory):
            raise ValueError(f"directory: {directory!r} is not a directory")
        self._validators = {}
        for name in sorted(disk.list_directory(directory)):
            if name.endswith(SUFFIX):
                path = f"{directory}/{name}"
                try:
                    schema = json.loads(disk.read_file(path))
                    Draft202012Validator.check_schema(schema)
                except Exception as error:
                    raise ValueError(f"{path} is not a JSON Schema: {error}") from error
                self._validators[name.removesuffix(SUFFIX)] = Draft202012Validator(schema)
        self.topics = tuple(self._validators)

    def intercept(self, batch: ProducedBatch) -> RejectBatch | None:
        validator = self._validators.get(batch.topic_partition.topic)
        if validator is None:
            return None
        wrong = {}
        for record in batch.records:
            if record.value is not None:
                text = self._error_of(validator, record.value)
                if text is not None:
                    wrong[record.offset] = text
        return (
            RejectBatch(f"{len(wrong)} of {len(batch.records)} records violate the schema", wrong) if wrong else None
        )

    def appended(self, batch: ProducedBatch, note_offset: int) -> None:
        """Do nothing: this interceptor writes no notes."""

    @staticmethod
    def _error_of(validator: Any, value: bytes) -> str | None:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError) as error:
            return f"the value is not JSON: {error}"
        first = next(validator.iter_errors(document), None)
        return None if first is None else f"{first.json_path}: {first.message}"[:500]
