"""Formats of keys and values in commands: options, decoding of records, and access to the schema registry."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kreplica.blocking.coroutines import run
from kreplica.blocking.reader import ReadRecord
from kreplica.cli.http.session import CommandFailed
from kreplica.errors import SettingsError, reason_of
from kreplica.formats.built_in import FORMATS
from kreplica.interfaces.formats import FormatError, SchemaNotLoaded

if TYPE_CHECKING:
    from kreplica.formats.catalogue import Formats
    from kreplica.formats.messages import RecordView
    from kreplica.formats.record_schemas import RecordSchemas
    from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse

RAW, AUTO = "raw", "auto"
BUILT_IN = tuple(maker.name for maker in FORMATS)


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Options of a command for the schema registry."""

    url: str | None
    user_info: str | None = field(repr=False)
    ca_file: Path | None


def _read_user_info(_: click.Context, __: click.Parameter, path: Path | None) -> str | None:
    if path is None:
        return None
    text = path.read_text().strip()
    if ":" not in text or "\n" in text:
        raise click.BadParameter(f"{path} does not contain one line USER:PASSWORD")
    return text


def registry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the schema registry, which the command receives as ``registry``."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)

    @click.option("--schema-registry", "registry_url", metavar="URL", envvar="KREPLICA_SCHEMA_REGISTRY",
                  show_envvar=True, help="URL of the schema registry, for Avro, Protobuf and JSON Schema.")  # fmt: skip
    @click.option("--schema-registry-user-file", "registry_user", type=file, callback=_read_user_info,
                  envvar="KREPLICA_SCHEMA_REGISTRY_USER_FILE", show_envvar=True,
                  help="File with USER:PASSWORD for the schema registry.")  # fmt: skip
    @click.option("--schema-registry-ca-file", "registry_ca", type=file,
                  envvar="KREPLICA_SCHEMA_REGISTRY_CA_FILE", show_envvar=True,
                  help="File with the certificates (PEM) to trust instead of the system's.")  # fmt: skip
    @wraps(command)
    def with_registry(
        *, registry_url: str | None, registry_user: str | None, registry_ca: Path | None, **others: Any
    ) -> Any:
        return command(registry=RegistryAccess(registry_url, registry_user, registry_ca), **others)

    return with_registry


class RecordFormats:
    """The formats of one command.

    :raise CommandFailed: the options of the registry are invalid.
    """

    def __init__(self, access: RegistryAccess) -> None:
        from kreplica.formats.catalogue import Formats
        from kreplica.formats.record_schemas import RecordSchemas
        from kreplica.formats.schema_store import SchemaStore

        store = SchemaStore(time.monotonic, has_registry=access.url is not None)
        self.formats: Formats = Formats(store)
        self.schemas: RecordSchemas = RecordSchemas(store, _registry(access, store))

    def check(self, option: str, name: str | None) -> None:
        """Check the name of a format.

        :raise CommandFailed: it is unknown.
        """
        if name not in (None, RAW, AUTO):
            try:
                self.formats.named(name)
            except FormatError as error:
                raise click.UsageError(f"{option}: {error}") from None

    def document(self, view: RecordView, record: ReadRecord) -> dict[str, Any] | None:
        """Return a record as the document of the REST API; None if the filter does not match.

        :raise FilterFailed: the filter cannot be evaluated for this record.
        """
        from kreplica.formats.record_data import RecordData

        timestamp_type = record.timestamp_type.name.lower()
        data = RecordData(
            record.partition,
            record.offset,
            record.timestamp_ms,
            timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        while True:
            try:
                return view.document(data)
            except SchemaNotLoaded as error:
                run(self.schemas.load(error.schema_id))

    def encode(
        self,
        name: str,
        value: Any,
        schema_id: int | None,
        subject: str | None,
        message: str | None,
    ) -> bytes:
        """Return the bytes of a value.

        :raise FormatError: it cannot be encoded.
        """
        chosen = self.formats.named(name)
        if not chosen.can_encode:
            raise FormatError(f"records cannot be written as {name}")
        schema = None
        if chosen.schema_type is not None:
            if (schema_id is None) == (subject is None):
                raise FormatError(f"{name} requires either the ID or the subject of a schema")
            schema = run(self.schemas.for_writing(schema_id, subject, None))
        data: bytes = chosen.encode(value, schema, message)
        return data


def _registry(access: RegistryAccess, store: Any) -> Any:
    if access.url is None:
        return None
    from kreplica.formats.registry import SchemaRegistry, registry_options

    try:
        options = registry_options(access.url, access.user_info)
    except SettingsError as error:
        raise CommandFailed(f"--schema-registry: {error}") from None
    return SchemaRegistry(options, store, _exchange(access.ca_file, options.timeout_s), time.monotonic)


def _exchange(ca_file: Path | None, timeout_s: float) -> Any:
    """Return a function that sends a request without an event loop."""
    import ssl

    from kreplica.blocking.http_exchange import BlockingExchange

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise CommandFailed(f"--schema-registry-ca-file {ca_file}: {reason_of(error)}") from None
    exchange = BlockingExchange(context, timeout_s)

    async def send(request: HttpRequest) -> HttpResponse:
        return exchange.send(request)

    return send

