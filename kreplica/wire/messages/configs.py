"""Configurations of topics, brokers and client metrics."""

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

LIST_CONFIG_RESOURCES = Api.define(
    74,
    "ListConfigResources",
    versions=(0, 1),
    flexible_from=0,
    request="resource_types []i8 1+",
    response="""
        throttle_time_ms i32
        error_code i16
        config_resources []
          resource_name str
          resource_type i8 1+ =16
    """,
)
"""Version 0 is ListClientMetricsResources of Apache Kafka 3.7 to 4.0 (KIP-714, KIP-1142)."""
