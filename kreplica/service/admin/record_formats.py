"""Builds the record formats and the schema registry client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kreplica.errors import SettingsError
from kreplica.formats.catalogue import Formats
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.formats.registry import RegistryOptions, SchemaRegistry, registry_options
from kreplica.formats.schema_store import SchemaStore
from kreplica.interfaces.formats import FormatContext
from kreplica.runtime import Runtime
from kreplica.service.plugins.format_plugin import FormatPlugin
from kreplica.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse
    from kreplica.security.tls.contexts import ClientTls

URL, CREDENTIALS = "kreplica.schema.registry.url", "kreplica.schema.registry.basic.auth.user.info"
CA_FILE, TIMEOUT_MS = "kreplica.schema.registry.ca.file", "kreplica.schema.registry.timeout.ms"


def record_formats(
    runtime: Runtime, settings: BrokerSettings, plugins: Mapping[str, FormatPlugin]
) -> tuple[Formats, RecordSchemas]:
    """Return the formats and schemas of one broker.

    :param plugins: the formats listed in ``kreplica.record.formats``, by name.
    :raise SettingsError: a setting of the registry or of a plugin is invalid.
    """
    url = settings[URL]
    store = SchemaStore(runtime.reactor.seconds, has_registry=bool(url))
    registry = _registry(runtime, settings, store) if url else None
    made = {}
    for name, plugin in plugins.items():
        try:
            made[name] = plugin.maker.make(FormatContext(name, plugin.settings, store))
        except Exception as error:
            raise SettingsError(f"kreplica.record.formats: the plugin {name} cannot be created: {error}") from error
    return Formats(store, made), RecordSchemas(store, registry)


def _registry(runtime: Runtime, settings: BrokerSettings, store: SchemaStore) -> SchemaRegistry:
    try:
        options = registry_options(settings[URL], settings[CREDENTIALS], settings[TIMEOUT_MS] / 1000)
    except SettingsError as error:
        raise SettingsError(f"{URL}, {CREDENTIALS}: {error}") from None
    tls = _tls(options, settings[CA_FILE])

    async def send(request: HttpRequest) -> HttpResponse:
        # Imported here because most brokers have no registry.
        from kreplica.security.oauth.http_exchange import exchange

        return await exchange(runtime.reactor, request, tls, options.timeout_s, options.timeout_s)

    return SchemaRegistry(options, store, send, runtime.reactor.seconds)


def _tls(options: RegistryOptions, ca_file: str | None) -> ClientTls | None:
    if not options.url.startswith("https"):
        return None
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.contexts import ClientTls
    from kreplica.security.tls.options import TlsOptions

    try:
        return ClientTls(TlsOptions(truststore_type="PEM", truststore_location=ca_file or None))
    except SettingsError as error:
        raise SettingsError(f"{CA_FILE}: {error}") from None
