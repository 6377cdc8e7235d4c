"""SASL handshake and authentication."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

SASL_HANDSHAKE = Api.define(
    17,
    "SaslHandshake",
    versions=(0, 1),
    flexible_from=None,
    request="""
        mechanism str
    """,
    response="""
        error_code i16
        mechanisms []str
    """,
)

SASL_AUTHENTICATE = Api.define(
    36,
    "SaslAuthenticate",
    versions=(0, 2),
    flexible_from=2,
    request="""
        auth_bytes bytes
    """,
    response="""
        error_code i16
        error_message str?
        auth_bytes bytes
        session_lifetime_ms i64 1+
    """,
)
