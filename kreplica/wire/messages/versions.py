"""ApiVersions, the first request of a connection (KIP-35, KIP-511)."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

API_VERSIONS = Api.define(
    18,
    "ApiVersions",
    versions=(0, 4),
    flexible_from=3,
    request="""
        client_software_name str 3+
        client_software_version str 3+
    """,
    response="""
        error_code i16
        api_keys []
          api_key i16
          min_version i16
          max_version i16
        throttle_time_ms i32 1+
        supported_features [] 3+ @0
          name str
          min_version i16
          max_version i16
        finalized_features_epoch i64 3+ @1 =-1
        finalized_features [] 3+ @2
          name str
          max_version_level i16
          min_version_level i16
        zk_migration_ready bool 3+ @3
    """,
)
