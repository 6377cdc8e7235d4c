"""Schemas in memory, shared by the reactor and worker threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from kreplica.interfaces.formats import FormatError, RegisteredSchema, SchemaNotLoaded

SCHEMAS_MAX = 500
FAILURE_SECONDS = 30.0
"""Time after which a failed request for a schema can be repeated."""


class SchemaStore:
    """Cache of schemas that drops the least recently used ones.

    :param has_registry: True if a registry is configured.
    :param seconds: monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float], *, has_registry: bool, schemas_max: int = SCHEMAS_MAX) -> None:
        self.has_registry = has_registry
        self._seconds = seconds
        self._schemas_max = schemas_max
        self._lock = Lock()
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._failures: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return a schema; see ``kreplica.interfaces.formats.Schemas``."""
        with self._lock:
            schema = self._schemas.get(schema_id)
            if schema is not None:
                self._schemas.move_to_end(schema_id)
                return schema
            until_s, text = self._failures.get(schema_id, (0.0, ""))
            if text and self._seconds() < until_s:
                raise FormatError(text)
        raise SchemaNotLoaded(schema_id)

    def add(self, schema: RegisteredSchema) -> None:
        """Store a schema."""
        with self._lock:
            self._failures.pop(schema.schema_id, None)
            self._schemas[schema.schema_id] = schema
            while len(self._schemas) > self._schemas_max:
                self._schemas.popitem(last=False)

    def add_failure(self, schema_id: int, text: str) -> None:
        """Store the reason why a schema is not available; it is forgotten after ``FAILURE_SECONDS``."""
        with self._lock:
            self._failures[schema_id] = (self._seconds() + FAILURE_SECONDS, text)
            while len(self._failures) > self._schemas_max:
                self._failures.popitem(last=False)
