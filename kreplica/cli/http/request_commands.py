"""Converts admin API requests to equivalent ``kreplica`` commands, to show the advice in responses as commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

Words = list[str]
Body = Mapping[str, Any]


def command_of(method: str, path: str, body: Body | None = None) -> str:
    """Return the command that sends a request, or the request as text if there is no such command."""
    for command_method, pattern, words_for in _COMMANDS:
        match = re.fullmatch(pattern, path)
        if method == command_method and match is not None:
            words = words_for([unquote(part) for part in match.groups()], body or {})
            if words is not None:
                return shlex.join(["kreplica", *words])
    return f"{method} {path}{'' if body is None else ' ' + json.dumps(body)}"


def _partition(row: Body) -> str:
    return f"{row['topic']}:{row['partition']}"


def _election(_: Words, body: Body) -> Words:
    return ["election", body["type"], *map(_partition, body.get("partitions") or [])]


def _plan(_: Words, body: Body) -> Words | None:
    """Return the command of a plan request; None if it has members that the command cannot express."""
    members = set(body) - {"kind"}
    kind = body["kind"].replace("_", "-")
    if members == {"assignments"}:
        moves = [f"{_partition(row)}={','.join(map(str, row['replicas']))}" for row in body["assignments"]]
        return ["plan", "make", kind, *moves]
    if members == {"brokers"}:
        return ["plan", "make", kind, *map(str, body["brokers"])]
    if members == {"topics", "replication_factor"}:
        return ["plan", "make", kind, *body["topics"], str(body["replication_factor"])]
    if kind == "rebalance" and members <= {"topics"}:
        return ["plan", "make", kind, *(word for topic in body.get("topics", []) for word in ("--topic", topic))]
    return None


def _throttle(parts: Words, body: Body) -> Words | None:
    if set(body) != {"throttle_bytes_per_second"} or body["throttle_bytes_per_second"] is None:
        return None
    return ["plan", "set", *parts, "--throttle", str(body["throttle_bytes_per_second"])]


def _cancel(parts: Words, body: Body) -> Words:
    return ["plan", "cancel", *parts, *(["--rollback"] if body.get("rollback") else [])]


def _settings(parts: Words, body: Body) -> Words | None:
    if body.get("remove") or not body.get("set"):
        return None
    return ["topic", "config", "set", *parts, *(f"{name}={value}" for name, value in body["set"].items())]


def _reset(parts: Words, body: Body) -> Words | None:
    kind = body["to"]["kind"]
    return ["group", "reset", *parts, f"--{kind}", "--execute"] if kind in ("earliest", "latest") else None


_COMMANDS: tuple[tuple[str, str, Callable[[Words, Body], Words | None]], ...] = (
    ("GET", r"/v1/why/brokers/(\d+)", lambda parts, _: ["why", "broker", *parts]),
    ("GET", r"/v1/brokers/(\d+)/connections", lambda parts, _: ["broker", "connections", *parts]),
    ("GET", r"/v1/why/partitions/([^/]+)/(\d+)", lambda parts, _: ["why", "partition", ":".join(parts)]),
    ("GET", r"/v1/plans/([^/]+)/moves", lambda parts, _: ["plan", "show", *parts, "--moves"]),
    ("DELETE", r"/v1/plans/([^/]+)", lambda parts, _: ["plan", "delete", *parts]),
    ("POST", r"/v1/plans/([^/]+)/cancel", _cancel),
    ("PATCH", r"/v1/plans/([^/]+)", _throttle),
    ("POST", r"/v1/plans", _plan),
    ("POST", r"/v1/elections", _election),
    ("POST", r"/v1/controller/resign", lambda _, __: ["controller", "resign"]),
    ("PATCH", r"/v1/configs/topics/([^/]+)", _settings),
    ("POST", r"/v1/groups/(.+)/offsets", _reset),
    ("DELETE", r"/v1/groups/([^/]+)", lambda parts, _: ["group", "delete", *parts]),
    *(
        ("GET", f"/v1/{path}", lambda _, __, words=words: list(words))
        for path, words in {
            "acls": ("acl", "list"),
            "brokers": ("broker", "list"),
            "cluster": ("cluster",),
            "controller": ("controller", "show"),
            "elections": ("election", "list"),
            "groups": ("group", "list"),
            "partitions": ("partition", "list"),
            "plans": ("plan", "list"),
            "timeline": ("timeline",),
            "tokens": ("token", "list"),
            "topics": ("topic", "list"),
            "users": ("user", "list"),
            "why/access": ("why", "access"),
        }.items()
    ),
)
