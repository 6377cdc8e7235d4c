"""JoinGroup (key 11): adds a member to a classic group, or to its next generation."""

from __future__ import annotations

from kreplica.groups.classic.requests import Join, JoinResponse
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.protocol.request import Request

KNOWN_MEMBERS_FROM = 4
"""First version in which a new member must join again with its assigned ID (KIP-394)."""

NULL_PROTOCOL_FROM = 7
SKIPPED_ASSIGNMENT_FROM = 9
"""First version whose response can request that the leader skip the assignment (KIP-814)."""


class JoinGroup:
    """Responds when all members have joined, at most after the rebalance timeout."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        body = request.body
        version = request.version
        session_timeout_ms = body["session_timeout_ms"]
        join = Join(
            member_id=body["member_id"],
            instance_id=body.get("group_instance_id"),
            client_id=request.client_id or "",
            client_host=client_host(request),
            session_timeout_ms=session_timeout_ms,
            # Before KIP-62 the session timeout is also the rebalance timeout.
            rebalance_timeout_ms=body["rebalance_timeout_ms"] if version >= 1 else session_timeout_ms,
            protocol_type=body["protocol_type"],
            protocols=tuple((row["name"], bytes(row["metadata"])) for row in body["protocols"]),
            requires_known_member=version >= KNOWN_MEMBERS_FROM,
            may_skip_assignment=version >= SKIPPED_ASSIGNMENT_FROM,
            reason=body.get("reason"),
        )
        group_id = body["group_id"]
        request.body = body = {}  # its views would keep the whole frame in memory while the member waits

        def respond(joined: JoinResponse) -> None:
            _respond(request, joined)

        self._groups.join(group_id, join, respond)
        if request.is_waiting:
            request.on_abandoned(lambda: self._groups.abandon_join(group_id, respond))


def client_host(request: Request) -> str:
    """Return the client's address in the form that Kafka's tools show: with a slash, and without the port."""
    return "/" + request.connection.peer.rpartition(":")[0].strip("[]")


def _respond(request: Request, joined: JoinResponse) -> None:
    no_protocol = None if request.version >= NULL_PROTOCOL_FROM else ""
    request.respond(
        {
            "throttle_time_ms": 0,
            "error_code": int(joined.error),
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol_name if joined.protocol_name is not None else no_protocol,
            "leader": joined.leader,
            "skip_assignment": joined.skip_assignment,
            "member_id": joined.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "metadata": member.metadata,
                }
                for member in joined.members
            ],
        }
    )
