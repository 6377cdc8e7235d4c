"""SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

DESCRIBE_USER_SCRAM_CREDENTIALS = Api.define(
    50,
    "DescribeUserScramCredentials",
    versions=(0, 0),
    flexible_from=0,
    request="""
        users []?
          name str
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        results []
          user str
          error_code i16
          error_message str?
          credential_infos []
            mechanism i8
            iterations i32
    """,
)

ALTER_USER_SCRAM_CREDENTIALS = Api.define(
    51,
    "AlterUserScramCredentials",
    versions=(0, 0),
    flexible_from=0,
    request="""
        deletions []
          name str
          mechanism i8
        upsertions []
          name str
          mechanism i8
          iterations i32
          salt bytes
          salted_password bytes
    """,
    response="""
        throttle_time_ms i32
        results []
          user str
          error_code i16
          error_message str?
    """,
)
