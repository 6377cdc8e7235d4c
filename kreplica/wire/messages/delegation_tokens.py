"""Delegation tokens (KIP-48)."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

CREATE_DELEGATION_TOKEN = Api.define(
    38,
    "CreateDelegationToken",
    versions=(0, 3),
    flexible_from=2,
    request="""
        owner_principal_type str? 3+
        owner_principal_name str? 3+
        renewers []
          principal_type str
          principal_name str
        max_lifetime_ms i64
    """,
    response="""
        error_code i16
        principal_type str
        principal_name str
        token_requester_principal_type str 3+
        token_requester_principal_name str 3+
        issue_timestamp_ms i64
        expiry_timestamp_ms i64
        max_timestamp_ms i64
        token_id str
        hmac bytes
        throttle_time_ms i32
    """,
)

RENEW_DELEGATION_TOKEN = Api.define(
    39,
    "RenewDelegationToken",
    versions=(0, 2),
    flexible_from=2,
    request="""
        hmac bytes
        renew_period_ms i64
    """,
    response="""
        error_code i16
        expiry_timestamp_ms i64
        throttle_time_ms i32
    """,
)

EXPIRE_DELEGATION_TOKEN = Api.define(
    40,
    "ExpireDelegationToken",
    versions=(0, 2),
    flexible_from=2,
    request="""
        hmac bytes
        expiry_time_period_ms i64
    """,
    response="""
        error_code i16
        expiry_timestamp_ms i64
        throttle_time_ms i32
    """,
)

DESCRIBE_DELEGATION_TOKEN = Api.define(
    41,
    "DescribeDelegationToken",
    versions=(0, 3),
    flexible_from=2,
    request="""
        owners []?
          principal_type str
          principal_name str
    """,
    response="""
        error_code i16
        tokens []
          principal_type str
          principal_name str
          token_requester_principal_type str 3+
          token_requester_principal_name str 3+
          issue_timestamp i64
          expiry_timestamp i64
          max_timestamp i64
          token_id str
          hmac bytes
          renewers []
            principal_type str
            principal_name str
        throttle_time_ms i32
    """,
)
