"""The schemas of one broker: those in memory, and the registry that has the others."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.formats.registry import SchemaSource
from kreplica.formats.schema_store import SchemaStore
from kreplica.interfaces.formats import FormatError, RegisteredSchema, SchemaNotLoaded


class RecordSchemas:
    """Loads each schema once, even if several readers need it.

    :param registry: None if no registry is configured.
    :ivar store: the schemas in memory.
    """

    def __init__(self, store: SchemaStore, registry: SchemaSource | None) -> None:
        self.store = store
        self._registry = registry
        self._loading: dict[int, list[Deferred[None]]] = {}

    async def load(self, schema_id: int, *, is_allowed: bool = True) -> None:
        """Load a schema, or the reason why it is not available, into the store.

        :param is_allowed: False to store a failure without a request.
        """
        if self._registry is None or not is_allowed:
            self.store.add_failure(schema_id, f"schema {schema_id} is not loaded: too many schemas in these records")
            return
        waiting = self._loading.get(schema_id)
        if waiting is not None:
            done: Deferred[None] = Deferred()
            waiting.append(done)
            await done
            return
        waiting = self._loading[schema_id] = []
        try:
            await self._registry.load(schema_id)
        finally:
            del self._loading[schema_id]
            for each in waiting:
                each.callback(None)

    async def for_writing(self, schema_id: int | None, subject: str | None, version: int | None) -> RegisteredSchema:
        """Return a schema by its ID, or by its subject and version.

        :raise FormatError: it does not exist, or no registry is configured.
        """
        if self._registry is None:
            raise FormatError("no schema registry is configured")
        if schema_id is None:
            return await self._registry.by_subject(subject or "", version)
        try:
            return self.store.by_id(schema_id)
        except SchemaNotLoaded:
            await self.load(schema_id)
        return self.store.by_id(schema_id)
