"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), which are not supported."""

from __future__ import annotations

from kreplica.errors import ErrorCode
from kreplica.server.protocol.request import Request

REFUSED = "This broker does not enforce client quotas, so it does not store them."


def describe_client_quotas(request: Request) -> None:
    """Respond that no quota is in force."""
    request.respond({"error_code": 0, "error_message": None, "entries": []})


def alter_client_quotas(request: Request) -> None:
    """Refuse each entry, also with ``validate_only``: a quota that is stored but not enforced protects nothing."""
    code = int(ErrorCode.UNSUPPORTED_VERSION)
    rows = [
        {"error_code": code, "error_message": REFUSED, "entity": entry["entity"]} for entry in request.body["entries"]
    ]
    request.respond({"entries": rows})
