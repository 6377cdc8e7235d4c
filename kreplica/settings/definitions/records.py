"""Settings for key and value formats in the admin API, and for the schema registry."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import INT, LIST, LOW, MEDIUM, PASSWORD, READ_ONLY, STRING
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, between

RECORDS = (
    Setting(
        "kreplica.record.formats", LIST, (), ANY, LOW, READ_ONLY,
        "Plugins that decode keys and values for the admin API, in addition to the built-in formats. They are tried "
        "first, in this order.",
    ),
    Setting(
        "kreplica.schema.registry.url", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The schema registry, as http://HOST:PORT or https://HOST:PORT, for Avro, Protobuf and JSON Schema in the "
        "admin API. The broker sends requests to no other address.",
    ),
    Setting(
        "kreplica.schema.registry.basic.auth.user.info", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The broker's credentials for the schema registry, as USER:PASSWORD.",
    ),
    Setting(
        "kreplica.schema.registry.ca.file", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The file with the certificates (PEM) of the authorities trusted for the schema registry; by default, those "
        "that the system trusts.",
    ),
    Setting(
        "kreplica.schema.registry.timeout.ms", INT, 5000, between(1, 60_000), LOW, READ_ONLY,
        "The maximum duration of a request to the schema registry.",
    ),
)
"""Settings for record formats."""
