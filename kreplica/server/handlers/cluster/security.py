"""Handles ACL requests on a broker without ACLs, and SASL requests after authentication or on a listener without SASL.

Tools and client libraries send these requests to detect features. Each handler is a function of the request.
"""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.server.authentication.sasl_session import session_of
from kreplica.server.protocol.request import Request

Row = dict[str, Any]

NO_ACLS = "No authorizer that stores ACLs is configured on the broker."


def describe_acls(request: Request) -> None:
    """DescribeAcls (key 29)."""
    request.respond({**_acls_disabled(), "resources": []})


def create_acls(request: Request) -> None:
    """CreateAcls (key 30): each ACL is rejected."""
    request.respond({"results": [_acls_disabled() for _ in request.body["creations"]]})


def delete_acls(request: Request) -> None:
    """DeleteAcls (key 31): each filter is rejected."""
    request.respond({"filter_results": [{**_acls_disabled(), "matching_acls": []} for _ in request.body["filters"]]})


def sasl_handshake(request: Request) -> None:
    """SaslHandshake (key 17) on an authenticated connection, or on a listener without SASL."""
    session = session_of(request.connection)
    if session is not None and session.may_reauthenticate:
        session.begin(request)
        return
    request.respond({"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "mechanisms": []})


def sasl_authenticate(request: Request) -> None:
    """SaslAuthenticate (key 36) on an authenticated connection, or on a listener without SASL."""
    session = session_of(request.connection)
    if session is not None and session.may_reauthenticate:
        session.authenticate(request)
        return
    request.respond(
        {
            "error_code": int(ErrorCode.ILLEGAL_SASL_STATE),
            "error_message": "The client is already authenticated, or its listener does not use SASL.",
            "auth_bytes": b"",
        }
    )


def _acls_disabled() -> Row:
    return {"error_code": int(ErrorCode.SECURITY_DISABLED), "error_message": NO_ACLS}
