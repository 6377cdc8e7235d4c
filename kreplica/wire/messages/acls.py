"""ACLs: describe, create and delete."""

from __future__ import annotations

from kreplica.wire.messages.api import Api

DESCRIBE_ACLS = Api.define(
    29,
    "DescribeAcls",
    versions=(0, 3),
    flexible_from=2,
    request="""
        resource_type_filter i8
        resource_name_filter str?
        pattern_type_filter i8 1+ =3
        principal_filter str?
        host_filter str?
        operation i8
        permission_type i8
    """,
    response="""
        throttle_time_ms i32
        error_code i16
        error_message str?
        resources []
          resource_type i8
          resource_name str
          pattern_type i8 1+ =3
          acls []
            principal str
            host str
            operation i8
            permission_type i8
    """,
)

CREATE_ACLS = Api.define(
    30,
    "CreateAcls",
    versions=(0, 3),
    flexible_from=2,
    request="""
        creations []
          resource_type i8
          resource_name str
          resource_pattern_type i8 1+ =3
          principal str
          host str
          operation i8
          permission_type i8
    """,
    response="""
        throttle_time_ms i32
        results []
          error_code i16
          error_message str?
    """,
)

DELETE_ACLS = Api.define(
    31,
    "DeleteAcls",
    versions=(0, 3),
    flexible_from=2,
    request="""
        filters []
          resource_type_filter i8
          resource_name_filter str?
          pattern_type_filter i8 1+ =3
          principal_filter str?
          host_filter str?
          operation i8
          permission_type i8
    """,
    response="""
        throttle_time_ms i32
        filter_results []
          error_code i16
          error_message str?
          matching_acls []
            error_code i16
            error_message str?
            resource_type i8
            resource_name str
            pattern_type i8 1+ =3
            principal str
            host str
            operation i8
            permission_type i8
    """,
)
