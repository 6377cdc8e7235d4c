"""Configurations of topics and brokers."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

DESCRIBE_CONFIGS = Api.define(
    32,
    "DescribeConfigs",
    versions=(0, 4),
    flexible_from=4,
    request="""
        resources []
          resource_type i8
          resource_name str
          configuration_keys []str?
        include_synonyms bool 1+
        include_documentation bool 3+
    """,
    response="""
        throttle_time_ms i32
        results []
          error_code i16
          error_message str?
          resource_type i8
          resource_name str
          configs []
            name str
            value str?
            read_only bool
            is_default bool 0
            config_source i8 1+ =-1
            is_sensitive bool
            synonyms [] 1+
              name str
              value str?
              source i8
            config_type i8 3+
            documentation str? 3+
    """,
)

ALTER_CONFIGS = Api.define(
    33,
    "AlterConfigs",
    versions=(0, 2),
    flexible_from=2,
    request="""
        resources []
          resource_type i8
          resource_name str
          configs []
            name str
            value str?
        validate_only bool
    """,
    response="""
        throttle_time_ms i32
        responses []
          error_code i16
          error_message str?
          resource_type i8
          resource_name str
    """,
)

INCREMENTAL_ALTER_CONFIGS = Api.define(
    44,
    "IncrementalAlterConfigs",
    versions=(0, 1),
    flexible_from=1,
    request="""
        resources []
          resource_type i8
          resource_name str
          configs []
            name str
            config_operation i8
            value str?
        validate_only bool
    """,
    response="""
        throttle_time_ms i32
        responses []
          error_code i16
          error_message str?
          resource_type i8
          resource_name str
    """,
)

LIST_CLIENT_METRICS_RESOURCES = Api.define(
    74,
    "ListClientMetricsResources",
    versions=(0, 0),
    flexible_from=0,
    request="",
    response="""
        throttle_time_ms i32
        error_code i16
        client_metrics_resources []
          name str
    """,
)
