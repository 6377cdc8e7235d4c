"""Client of a schema registry with Confluent's REST API, without I/O.

It sends requests only to the configured URL; the exchange functions of the broker and of the commands follow no
redirects.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

from kreplica.errors import KreplicaError, SettingsError
from kreplica.formats.schema_store import SchemaStore
from kreplica.interfaces.formats import FormatError, RegisteredSchema, SchemaNotLoaded

if TYPE_CHECKING:
    from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse

    Exchange = Callable[[HttpRequest], Awaitable[HttpResponse]]
    """Sends a request; raises ``KreplicaError`` if there is no response."""

REFERENCES_MAX = 100
"""Maximum number of schemas that one schema references, directly or indirectly."""

SCHEMA_TEXT_MAX = 512 * 1024
BACKOFF_SECONDS = 5.0
"""Pause after a request without a response, so that readers of many records do not wait for each schema."""

_TYPES = ("AVRO", "PROTOBUF", "JSON")
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_MESSAGE_LENGTH_MAX = 200
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Address and credentials of a registry.

    :param url: without a trailing slash and without credentials.
    :param user_info: ``user:password`` for HTTP basic authentication.
    """

    url: str
    user_info: str | None = field(default=None, repr=False)
    timeout_s: float = 5.0


def registry_options(url: str, user_info: str | None, timeout_s: float = 5.0) -> RegistryOptions:
    """Check the options of a registry.

    :param url: it may contain ``user:password@``, which ``user_info`` overrides.
    :raise SettingsError: the URL is invalid; the text contains no credentials.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port in (0, -1) or parts.query or parts.fragment:
        raise SettingsError("the URL of the schema registry must have the form http://HOST:PORT or https://HOST:PORT")
    if user_info is not None and ":" not in user_info:
        raise SettingsError("the credentials of the schema registry must have the form USER:PASSWORD")
    url_credentials, _, host = parts.netloc.rpartition("@")
    url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    return RegistryOptions(url, user_info or url_credentials or None, timeout_s)


class SchemaSource(Protocol):
    """Loads schemas into a store."""

    async def load(self, schema_id: int) -> None:
        """Add a schema or a failure to the store."""

    async def by_subject(self, subject: str, version: int | None) -> RegisteredSchema:
        """Return a version of a subject; the latest one if ``version`` is None.

        :raise FormatError: it does not exist, or the registry does not respond.
        """


class SchemaRegistry:
    """Loads schemas from a registry into a store.

    :param exchange: sends a request, within the timeout of the options.
    :param seconds: monotonic clock.
    """

    def __init__(
        self, options: RegistryOptions, store: SchemaStore, exchange: Exchange, seconds: Callable[[], float]
    ) -> None:
        self._options = options
        self._store = store
        self._exchange = exchange
        self._seconds = seconds
        self._backoff_until_s = 0.0
        self._last_error = ""

    async def load(self, schema_id: int) -> None:
        """Add a schema or a failure to the store."""
        try:
            self._store.add(await self._by_id(schema_id))
        except FormatError as error:
            self._store.add_failure(schema_id, str(error))

    async def by_subject(self, subject: str, version: int | None) -> RegisteredSchema:
        """Return a version of a subject; see ``SchemaSource``."""
        document = await self._object(_version_path(subject, version), f"subject {subject}")
        schema_id = document.get("id")
        if type(schema_id) is not int:
            raise FormatError(f"the schema registry returned no ID for the subject {subject}")
        try:
            schema = self._store.by_id(schema_id)
        except (SchemaNotLoaded, FormatError):
            schema = await self._by_id(schema_id)
            self._store.add(schema)
        return schema

    async def _by_id(self, schema_id: int) -> RegisteredSchema:
        path = f"/schemas/ids/{schema_id}"
        document = await self._object(path, f"schema {schema_id}")
        subjects = await self._subjects(path)
        return await self._schema(schema_id, path, document, subjects, {})

    async def _subjects(self, path: str) -> tuple[tuple[str, int], ...]:
        try:
            rows: Any = await self._get(f"{path}/versions", "the subjects")
        except FormatError:
            return ()  # some registries do not support this request
        if not isinstance(rows, list):
            return ()
        found = [(row.get("subject"), row.get("version")) for row in rows[:REFERENCES_MAX] if isinstance(row, dict)]
        return tuple((name, number) for name, number in found if isinstance(name, str) and type(number) is int)

    async def _schema(
        self,
        schema_id: int,
        path: str,
        document: Mapping[str, Any],
        subjects: tuple[tuple[str, int], ...],
        loaded: dict[tuple[str, int], RegisteredSchema],
    ) -> RegisteredSchema:
        """Return a schema with everything that it references.

        :param loaded: schemas that were already loaded for the same root, by subject and version.
        """
        schema_type = document.get("schemaType") or "AVRO"
        text = document.get("schema")
        if schema_type not in _TYPES or not isinstance(text, str):
            raise FormatError(f"schema {schema_id} has the unknown type {str(schema_type)[:20]!r}, or no text")
        if len(text) > SCHEMA_TEXT_MAX:
            raise FormatError(f"schema {schema_id} is longer than {SCHEMA_TEXT_MAX:,} characters")
        is_serialized = False
        if schema_type == "PROTOBUF":
            # Clients may register serialized descriptors, which some registries return unchanged.
            serialized = text if _is_base64(text) else await self._serialized_schema(path)
            text, is_serialized = (text, False) if serialized is None else (serialized, True)
        references: dict[str, RegisteredSchema] = {}
        for row in _rows(document.get("references")):
            name, key = row["name"], (row["subject"], row["version"])
            if key not in loaded:
                if len(loaded) >= REFERENCES_MAX:
                    raise FormatError(f"schema {schema_id} references more than {REFERENCES_MAX} schemas")
                loaded[key] = await self._reference(schema_id, *key, loaded)
            references.update(loaded[key].references)
            references[name] = loaded[key]
        return RegisteredSchema(schema_id, schema_type, text, subjects, references, is_serialized)

    async def _reference(
        self, schema_id: int, subject: str, version: int, loaded: dict[tuple[str, int], RegisteredSchema]
    ) -> RegisteredSchema:
        # Marks the reference as being loaded, so that a cycle ends.
        loaded[subject, version] = RegisteredSchema(0, "AVRO", '"null"')
        path = _version_path(subject, version)
        document = await self._object(path, f"version {version} of {subject}, which schema {schema_id} references")
        own_id = document.get("id")
        return await self._schema(
            own_id if type(own_id) is int else 0, path, document, ((subject, version),), loaded
        )

    async def _serialized_schema(self, path: str) -> str | None:
        """Return the serialized form of a Protobuf schema; None if the registry does not support it."""
        try:
            text = (await self._object(f"{path}?format=serialized", "the serialized schema")).get("schema")
        except FormatError:
            return None
        return text if isinstance(text, str) and _is_base64(text) else None

    async def _object(self, path: str, what: str) -> dict[str, Any]:
        """Return the JSON object at a path; see ``_get``."""
        document = await self._get(path, what)
        if not isinstance(document, dict):
            raise FormatError(f"the schema registry did not return a JSON object for {what}")
        return document

    async def _get(self, path: str, what: str) -> Any:
        """Return the document at a path.

        :param what: the requested object, for error messages.
        :raise FormatError: no document was returned.
        """
        # Imported here because most brokers use no registry.
        from kreplica.security.oauth.token_requests import HttpRequest

        if self._seconds() < self._backoff_until_s:
            raise FormatError(self._last_error)
        headers = {"Accept": _ACCEPT, "User-Agent": "kreplica"}
        if self._options.user_info is not None:
            headers["Authorization"] = "Basic " + b64encode(self._options.user_info.encode()).decode("ascii")
        request = HttpRequest("GET", self._options.url + path, headers)
        try:
            response = await self._exchange(request)
        except KreplicaError as error:
            self._last_error = f"the schema registry does not respond: {error}"
            self._backoff_until_s = self._seconds() + BACKOFF_SECONDS
            raise FormatError(self._last_error) from None
        try:
            document = json.loads(response.body)
        except (ValueError, RecursionError):
            document = None
        if response.status == _NOT_FOUND:
            raise FormatError(f"the schema registry does not have {what}")
        if response.status != 200 or document is None:
            raise FormatError(f"the schema registry returned status {response.status} for {what}{_message(document)}")
        return document


def _is_base64(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _version_path(subject: str, version: int | None) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{'latest' if version is None else version}"


def _rows(references: Any) -> list[dict[str, Any]]:
    rows = references if isinstance(references, list) else []
    types = {"name": str, "subject": str, "version": int}
    objects = [row for row in rows if isinstance(row, dict)]
    return [row for row in objects if all(type(row.get(name)) is kind for name, kind in types.items())]


def _message(document: Any) -> str:
    text = document.get("message") if isinstance(document, dict) else None
    return f": {text[:_MESSAGE_LENGTH_MAX]}" if isinstance(text, str) else ""
