"""The schemas of one broker: those in memory, and the registry from which others are loaded."""

from __future__ import annotations

from kreplica.formats.registry import SchemaSource
from kreplica.formats.schema_store import SchemaStore
from kreplica.interfaces.formats import FormatError, RegisteredSchema, SchemaNotLoaded
from kreplica.runtime.shared_coroutine import SharedCoroutine


class RecordSchemas:
    """Loads each schema once, even if several readers need it.

    :param registry: None if no registry is configured.
    :ivar store: the schemas in memory.
    """

    def __init__(self, store: SchemaStore, registry: SchemaSource | None) -> None:
        self.store = store
        self._registry = registry
        self._loading: dict[int, SharedCoroutine[None]] = {}

    async def load(self, schema_id: int) -> None:
        """Load a schema into the store, or store the reason why it is not available."""
        if self._registry is None:
            self.store.add_failure(schema_id, f"schema {schema_id} is not loaded: no schema registry is configured")
            return
        loading = self._loading.get(schema_id)
        if loading is None:
            loading = SharedCoroutine(self._registry.load(schema_id))
            if not loading.is_over:
                self._loading[schema_id] = loading
        try:
            await loading.wait()
        finally:
            if loading.is_over and self._loading.get(schema_id) is loading:
                del self._loading[schema_id]

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
