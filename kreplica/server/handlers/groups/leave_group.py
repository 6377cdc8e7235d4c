"""LeaveGroup (key 13): removes members from a classic group, including static ones."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.requests import Leave
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.protocol.request import Request

SEVERAL_FROM = 3
"""First version with several members in a request, each with its own response row (KIP-345)."""


class LeaveGroup:
    """Responds at once; nothing is written until the remaining members have rejoined."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        body = request.body
        if request.version < SEVERAL_FROM:
            leaves = [Leave(body["member_id"])]
        else:
            leaves = [
                Leave(row["member_id"], row["group_instance_id"], row.get("reason")) for row in body["members"]
            ]
        try:
            codes = self._groups.leave(body["group_id"], leaves)
        except KafkaError as error:
            request.respond({"throttle_time_ms": 0, "error_code": int(error.code), "members": []})
            return
        group_code = codes[0] if request.version < SEVERAL_FROM else ErrorCode.NONE
        members = [
            {"member_id": leave.member_id, "group_instance_id": leave.instance_id, "error_code": int(code)}
            for leave, code in zip(leaves, codes, strict=True)
        ]
        request.respond({"throttle_time_ms": 0, "error_code": int(group_code), "members": members})
