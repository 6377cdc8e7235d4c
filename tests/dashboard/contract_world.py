"""Data of the contract server's cluster, in documents with the fields of the contract."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.admin.lists import broker_list, client_list, connection_list, group_list, topic_list
from kreplica.admin.lists.columns import Columns
from kreplica.admin.resources import config_rows

Document = dict[str, Any]

CLIENT = "kMe3kEaOR0Ox8nbWqna000"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
CONFIG = {
    "name": "retention.ms",
    "value": "604800000",
    "default_value": "604800000",
    "is_default": True,
    "source": "default",
    "type": "long",
    "documentation": "How long a log is kept, in milliseconds.",
    "unit": "ms",
    "allowed": "a whole number, -1 or more",
    "choices": None,
    "read_only": False,
    "sensitive": False,
}


THROTTLED = {
    "broker_id": 1,
    "quota": "producer_byte_rate",
    "user": f"User:{HOSTILE}",
    "client_id": HOSTILE,
    "address": "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff",
    "count": 123456,
    "throttled_ms": 1234567,
    "last_at_ms": 1_700_000_000_000,
    "until_ms": None,
}
ACL = {
    "resource_type": "topic",
    "resource_name": HOSTILE,
    "pattern_type": "literal",
    "principal": "User:alice",
    "host": "*",
    "operation": "describe_configs",
    "permission": "allow",
}


class World:
    """A cluster without brokers, which produces the admin API's documents.

    :param down: ID of a broker that is not registered.
    :ivar has_figures: True if the brokers' metrics are available.
    :ivar is_standalone: True if one process runs all brokers, and can kill them.
    :ivar faults: sentences of the first live broker's faults.
    :ivar cordoned: IDs of cordoned brokers.
    :ivar plan_changes: members of the plan that differ from a running rebalance.
    """

    def __init__(self, *, topics: int, partitions: int, brokers: int = 3, down: int | None = None) -> None:
        self.ids = list(range(1, brokers + 1))
        self.live = [number for number in self.ids if number != down]
        self.names = [f"{('orders', 'payments', 'clicks', 'audit')[i % 4]}-{i:04}" for i in range(topics)]
        self.count = partitions
        self.groups = 3
        self.has_figures = True
        self.is_standalone = False
        self.faults: list[str] = []
        self.cordoned: list[int] = []
        self.plan_changes: Document = {}
        self.started_ms = time.time() * 1000

    # --- resources ---------------------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Document:
        first = (hash_of(topic) + number) % len(self.ids)
        replicas = [self.ids[(first + step) % len(self.ids)] for step in range(min(3, len(self.ids)))]
        isr = [broker for broker in replicas if broker in self.live]
        return {
            "topic": topic,
            "partition": number,
            "leader": isr[0] if isr else None,
            "leader_epoch": 4,
            "replicas": replicas,
            "isr": isr,
            "offline_replicas": [broker for broker in replicas if broker not in self.live],
            "adding": [],
            "removing": [],
            "read_only": False,
        }

    def partitions(self) -> list[Document]:
        return [self.partition(topic, number) for topic in self.names for number in range(self.count)]

    def under_replicated(self) -> int:
        return sum(len(partition["isr"]) < len(partition["replicas"]) for partition in self.partitions())

    def cluster(self) -> Document:
        return {
            "cluster_id": "2pZvKqBtQ8-contract",
            "kreplica_version": "0.1.0",
            "broker_id": 1,
            "controller": {"broker_id": 1, "epoch": 7},
            "live_brokers": self.live,
            "cordoned_brokers": self.cordoned,
            "topics": len(self.names),
            "partitions": len(self.names) * self.count,
            "offline_partitions": 0,
            "under_replicated_partitions": self.under_replicated(),
            "under_min_isr_partitions": 0,
            "health": self.health(),
            "zookeeper": {"connect": "127.0.0.1:2181", "session": "connected"},
            "standalone": self.is_standalone,
        }

    def health(self) -> Document:
        faults = self.broker_faults()
        behind = self.under_replicated()
        if behind:
            faults.append(self.fault("under_replicated", "warn", f"{behind:,} partitions are under-replicated.", None))
        well = f"All is well: {len(self.live)} brokers, every partition has a leader, and all replicas are in sync."
        return {
            "state": faults[0]["severity"] if faults else "good",
            "summary": faults[0]["text"] if faults else well,
            "figures": {},
            "faults": faults,
            "problems": [],
        }

    def broker_faults(self) -> list[Document]:
        """Return the faults of the first live broker."""
        first = self.live[0]
        why, subject = f"/v1/why/brokers/{first}", f"broker {first}"
        return [self.fault("full_disk", "bad", text, why, subject) for text in self.faults]

    def fault(self, kind: str, severity: str, text: str, why: str | None, subject: str = "cluster") -> Document:
        return {
            "kind": kind, "severity": severity, "subject": subject, "text": text, "count": 0, "examples": [],
            "why": why,
        }  # fmt: skip

    def broker(self, number: int) -> Document:
        share = len(self.names) * self.count
        return {
            "broker_id": number,
            "rack": None,
            "endpoints": [f"PLAINTEXT://127.0.0.1:{9091 + number}"],
            "broker_epoch": 40,
            "registered_at_ms": int(self.started_ms),
            "admin_url": None,
            "is_controller": number == 1,
            "cordoned": number in self.cordoned,
            "leaders": share // len(self.ids),
            "replicas": share,
            "under_replicated_leaders": 0,
            "live": True,
            "version": "0.1.0",
            "python": "3.11.2, optimized",
            "connections": 250,
            "log_bytes": 40_000_000_000 * number,
            "usable_bytes": 100_000_000_000,
            "offline_log_dirs": 0,
            "bytes_in_rate": 2_000_000.0,
            "bytes_out_rate": 5_000_000.0,
            "messages_in_rate": 2000.0,
            "reactor_delay_p99_ms": 1.5,
        }

    def connection(self, number: int) -> Document:
        return {
            "address": f"10.0.{number // 250}.{number % 250}:{50_000 + number}",
            "listener": "SASL_SSL",
            "user": f"User:{HOSTILE}" if number == 0 else "User:alice",
            "client_id": HOSTILE if number == 0 else f"shop-{number}",
            "software_name": "librdkafka" if number % 2 else "apache-kafka-java",
            "software_version": "2.6.1",
            "client_instance_id": CLIENT if number == 101 else None,
            "is_broker": number % 100 == 0,
            "opened_at_ms": int(self.started_ms) - number * 1000,
            "idle_ms": number * 10,
            "in_flight": number % 3,
            "bytes_in": number * 1_000_000,
            "bytes_out": number * 3_000_000,
            "bytes_in_rate": number * 1000.0,
            "bytes_out_rate": None,
        }

    def client(self, number: int) -> Document:
        return {
            "client_instance_id": CLIENT[:-3] + f"{number:03}" if number else CLIENT,
            "broker_id": self.live[number % len(self.live)],
            "client_id": HOSTILE if number == 1 else f"shop-{number}",
            "software_name": "librdkafka" if number % 2 else "apache-kafka-java",
            "software_version": "2.6.1",
            "address": f"10.0.0.{number % 250}:{50_000 + number}",
            "user": "User:alice",
            "state": ("SUBSCRIBED", "UNSUBSCRIBED", "TERMINATED")[number % 3],
            "subscriptions": [HOSTILE, "all"],
            "push_interval_ms": 10_000,
            "last_request_at_ms": int(self.started_ms),
            "pushed_at_ms": None if number % 3 == 1 else int(self.started_ms),
            "pushes": number,
            "metrics": number * 10,
            "bytes": number * 1000,
        }

    def client_metrics(self) -> Document:
        prefix = "org.apache.kafka.producer."
        rows = [
            ("node.request.latency.avg", "gauge", {"node.id": "1"}, 0.842),
            ("node.request.latency.avg", "gauge", {"node.id": "2"}, 12),
            ("node.request.latency.avg", "gauge", {"node.id": "3"}, None),
            ("record.send.total", "sum", {"topic": HOSTILE}, 12345),
        ]
        metrics = [
            {
                "name": prefix + name,
                "kind": kind,
                "unit": "",
                "attributes": attributes,
                "value": value,
                "at_ms": int(self.started_ms),
            }
            for name, kind, attributes, value in rows
        ]
        return {"labels": {"group_id": HOSTILE}, "metrics": metrics, "is_complete": False}

    def group(self, name: str, number: int) -> Document:
        return {
            "group": name,
            "type": "classic",
            "protocol_type": "consumer",
            "state": "Stable",
            "coordinator": 2,
            "members": number % 4,
            "topics": self.names[:4],
            "partitions": 4 * self.count,
            "lag": number * 137 % 5000,
            "lag_without_commit": 60,
            "partitions_without_commit": number % 2,
            "last_commit_at_ms": int(self.started_ms),
            "status": ("OK", "WARN", "STALLED", "STOPPED")[number % 4],
        }

    def history(self, query: Mapping[str, str]) -> Document:
        """Return half an hour of values with a peak, and nulls for older points."""
        now_ms = int(time.time() * 1000)
        from_ms, to_ms = (int(query[name]) for name in ("from", "to"))
        from_ms, to_ms = (each if each >= 0 else now_ms + each for each in (from_ms, to_ms))
        step_ms = 5000 if to_ms - from_ms <= 900_000 else 60_000
        first, last = from_ms // step_ms + 1, to_ms // step_ms
        ages = [(now_ms - number * step_ms) / 60_000 for number in range(first, last + 1)]
        wave = [None if age > 30 else 1000.0 * (2 + math.sin(age)) + (4000 if 5 < age < 6 else 0) for age in ages]
        values = {
            name: [None if each is None else round(each * scale, 3) for each in wave]
            for name in query["series"].split(",")
            for scale in (0.001 if name.endswith("_ms") or "partitions" in name or "replicated" in name else 1,)
        }
        brokers = []
        for number in self.live:
            # Only the first broker has sampled the latest point.
            known = values if number == self.live[0] else {name: [*each[:-1], None] for name, each in values.items()}
            series = {name: {"mean": each, "peak": each} for name, each in known.items()}
            brokers.append({"broker_id": number, "series": series})
        return {
            "at_ms": now_ms,
            "from_ms": first * step_ms,
            "step_ms": step_ms,
            "points": len(ages),
            "brokers": brokers,
            "problems": [],
        }

    def topic(self, name: str) -> Document:
        return {
            "name": name,
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "partitions": self.count,
            "replication_factor": 3,
            "is_internal": False,
            "offline_partitions": 0,
            "under_replicated_partitions": 0,
            "deleting": False,
            "under_min_isr_partitions": 0,
            "health": "under_replicated" if name.endswith("7") else "healthy",
            "records": hash_of(name) * 1000,
            "size_bytes": hash_of(name) * 1_000_000 + int(name[-4:]),
            "disk_bytes": hash_of(name) * 3_000_000,
            "records_in_rate": 12.5,
            "bytes_in_rate": 1000.0,
            "bytes_out_rate": 3000.0,
            "retention_ms": 604_800_000,
            "retention_bytes": -1,
            "cleanup_policy": "delete",
            "min_insync_replicas": 2,
            "groups": 3,
            "brokers": [{"broker_id": 1, "leaders": 1, "replicas": 2}, {"broker_id": 2, "leaders": 0, "replicas": 1}],
        }

    def message(self, offset: int) -> Document:
        value = HOSTILE if offset == 0 else {"order": 42, "items": ["coffee", "cake"]}
        return {
            "partition": 0,
            "offset": offset,
            "timestamp_ms": int(self.started_ms),
            "timestamp_type": "create_time",
            "key": self.part("text", HOSTILE if offset == 0 else "42"),
            "value": self.part("text" if offset == 0 else "json", value),
            "headers": [{"key": HOSTILE, "value": HOSTILE, "encoding": "utf8"}],
            "size_bytes": 120,
            "control": None,
        }

    @staticmethod
    def part(format_name: str, value: object) -> Document:
        return {
            "format": format_name,
            "value": value,
            "size_bytes": 42,
            "schema": None,
            "error": HOSTILE if format_name == "text" else None,
            "truncated": False,
        }

    def entry(self, number: int) -> Document:
        return {
            "id": f"e{number:06}",
            "at_ms": int(self.started_ms) - number,
            "broker_id": 1,
            "controller_epoch": 7,
            "kind": "leader_elected",
            "subject": "orders-0000-1",
            "text": f"Broker 2 leads now: {HOSTILE}",
            "details": {"was": 3},
        }

    def plan(self) -> Document:
        progress = {
            "moves": 40,
            "waiting": 20,
            "moving": 5,
            "finished": 15,
            "failed": 0,
            "bytes": 4_000_000_000,
            "bytes_done": 1_700_000_000,
            "eta_seconds": 230,
        }
        return {
            "id": "plan-0000000001",
            "kind": "rebalance",
            "state": "running",
            "created_at_ms": int(self.started_ms),
            "ended_at_ms": None,
            "comment": HOSTILE,
            "request": {},
            "throttle_bytes_per_second": 20_000_000,
            "moves_at_once": 5,
            "reason": None,
            "progress": progress,
            **self.plan_changes,
        }

    def move(self, number: int) -> Document:
        return {
            "number": number,
            "topic": self.names[0],
            "partition": number,
            "action": "move",
            "from": [1, 2, 3],
            "to": [2, 3, 1],
            "bytes": 100_000_000,
            "bytes_done": 40_000_000,
            "state": "moving",
            "reason": None,
        }

    def figures(self) -> Document:
        seconds = time.time() - self.started_ms / 1000
        wave = seconds * 2_000_000 + 1_500_000 * math.sin(seconds / 3)
        brokers = [
            {
                "broker_id": number,
                "live": True,
                "bytes_in": wave,
                "bytes_out": wave * 1.8,
                "leaders": 8,
                "replicas": 24,
                "produce": {"requests": seconds * 300, "time_ms": wave / 2500},
                "fetch": {"requests": seconds * 500, "time_ms": wave / 1200},
                "under_replicated": 0,
                "under_min_isr": 0,
                "offline": 0,
                "reactor_delay_p99_ms": 2.5,
                "warnings": [],
            }
            for number in self.live
        ]
        return {"at_ms": int(time.time() * 1000), "brokers": brokers}

    def events(self, name: str) -> list[Document]:
        return [self.message(offset) for offset in range(3)] if name == "message" else [self.entry(0)]

    # --- responses ---------------------------------------------------------------------------------------------------

    def respond(self, method: str, path: Sequence[str], query: Mapping[str, str], body: Any) -> tuple[int, Document]:
        """Return the document for a read, or the znodes of a write."""
        if method != "GET":
            return self._write_response(path, query, body)
        match path:
            case ["cluster"]:
                return 200, self.cluster()
            case ["clients"]:
                return _page(client_list.COLUMNS, "clients", [self.client(number) for number in range(20)], query)
            case ["clients", _]:
                return 200, self.client_metrics()
            case ["configs", "client-metrics"]:
                return 200, {"subscriptions": ["all", HOSTILE]}
            case ["configs", "client-metrics", _]:
                return 200, {"configs": config_rows.of_subscription({"metrics": HOSTILE})}
            case ["brokers"]:
                return _page(broker_list.COLUMNS, "brokers", [self.broker(number) for number in self.live], query)
            case ["brokers", _, "connections"]:
                rows = [self.connection(number) for number in range(250)]
                return _page(connection_list.COLUMNS, "connections", rows, query)
            case ["brokers", number]:
                faults = self.broker_faults() if int(number) == self.live[0] else []
                return 200, {**self.broker(int(number)), "log_dirs": [], "faults": faults, "problems": []}
            case ["topics"]:
                rows = [self.topic(name) for name in self.names if query.get("search", "") in name]
                return _page(topic_list.COLUMNS, "topics", rows, query)
            case ["history"] if self.has_figures:
                return 200, self.history(query)
            case ["topics" | "groups", _, "history"] if self.has_figures:
                return 200, self.history(query)
            case ["topics", name]:
                return (200, self.topic(name)) if name in self.names else _missing(name)
            case ["topics", name, "partitions"]:
                rows = [self.partition(name, number) for number in range(self.count)]
                return 200, {"partitions": rows[: int(query.get("limit", 1000))], "next": None}
            case ["formats"]:
                names = ["json", "text", "hex", "avro", "protobuf"]
                return 200, {
                    "formats": [
                        {
                            "name": name,
                            "description": name,
                            "can_encode": True,
                            "needs_schema": name in ("avro", "protobuf"),
                            "automatic": True,
                        }
                        for name in names
                    ],
                    "schema_registry": {"configured": True},
                }
            case ["topics", _, "messages"] if query.get("filter", "").endswith(">"):
                detail = "the query parameter 'filter': column 13: mismatched input"
                return 400, {"title": "INVALID_FILTER", "status": 400, "detail": detail, "column": 13}
            case ["topics", _, "messages"]:
                counts = {"scanned": 3, "remaining": 0, "filter_errors": 0, "filter_error": None, "problems": []}
                return 200, {"messages": [self.message(offset) for offset in range(3)], "next": None, **counts}
            case ["partitions"]:
                return 200, {"partitions": self.partitions()[: int(query.get("limit", 1000))], "next": None}
            case ["configs", *_]:
                return 200, {"configs": [CONFIG]}
            case ["groups"]:
                names = [HOSTILE, *(f"group-{number:04}" for number in range(self.groups))]
                rows = [self.group(name, number) for number, name in enumerate(names)]
                read = query.get("topic", self.names[0])
                found = [row for row in rows if query.get("search", "") in row["group"] and read in row["topics"]]
                return _page(group_list.COLUMNS, "groups", found, query)
            case ["groups", name, "lag"]:
                row = {
                    "topic": self.names[0],
                    "partition": 0,
                    "committed_offset": 40,
                    "committed_at_ms": int(self.started_ms),
                    "log_end_offset": 100,
                    "lag": 60,
                    "status": "WARN",
                }
                never = {**row, "partition": 1, "committed_offset": None, "committed_at_ms": None, "status": None}
                lags = {"lag": 120, "lag_without_commit": 60, "partitions_without_commit": 1}
                return 200, {"group": name, "state": "Stable", "status": "WARN", **lags, "partitions": [row, never]}
            case ["groups", name]:
                return 200, {
                    "group": name,
                    "type": "classic",
                    "protocol_type": "consumer",
                    "state": "Stable",
                    "coordinator": 2,
                    "members": [],
                }
            case ["plans"]:
                return 200, {"plans": [self.plan()]}
            case ["plans", _, "moves"]:
                return 200, {"moves": [self.move(number) for number in range(20)], "next": None}
            case ["plans", _]:
                return 200, self.plan()
            case ["session"]:
                return 200, {"user": "User:alice", "is_super": False, "method": "session", "ends_at_ms": 0}
            case ["users"]:
                mechanisms = [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]
                return 200, {"users": [{"user": name, "mechanisms": mechanisms} for name in ("alice", HOSTILE)]}
            case ["acls"]:
                return 200, {"acls": [ACL, {**ACL, "permission": "deny", "pattern_type": "prefixed"}], "next": None}
            case ["quotas"]:
                entities = ({"user": "alice"}, {"user": HOSTILE, "client_id": "<default>"}, {"ip": "2001:db8::1"})
                values = {"producer_byte_rate": 1048576, "request_percentage": 12.5}
                rows = [{"user": None, "client_id": None, "ip": None, **each, "quotas": values} for each in entities]
                return 200, {"quotas": rows, "next": None}
            case ["throttled-clients"]:
                return 200, {"clients": [THROTTLED, {**THROTTLED, "broker_id": 2, "until_ms": 1}], "problems": []}
            case ["why", "access"]:
                name = query["operation"].title()
                summary = f"{query['principal']} may {name} topic 'orders': an ACL allows it."
                return 200, {"allowed": True, "reason": "allowed_by_acl", "summary": summary, "acl": ACL}
            case ["why", kind, *rest]:
                return 200, _why(kind, rest)
            case ["standalone"] if self.is_standalone:
                rows = [{"broker_id": each, "state": "running", "starting": False} for each in self.live]
                return 200, {"brokers": rows}
            case ["timeline"]:
                return 200, {"entries": [self.entry(number) for number in range(1, 20)], "problems": []}
            case ["live-metrics"] if self.has_figures:
                return 200, self.figures()
        return _missing("/".join(path))

    def _write_response(self, path: Sequence[str], query: Mapping[str, str], body: Any) -> tuple[int, Document]:
        dry_run = query.get("dry_run") == "true"
        if path[0] == "topics" and body and body.get("name") == "refused":
            return 409, {
                "title": "TOPIC_ALREADY_EXISTS",
                "status": 409,
                "detail": "the topic refused exists",
                "what_to_do": "Choose another name.",
            }
        znodes = [{"operation": "create", "path": "/" + "/".join(path), "data": body}]
        document: Document = {"znodes": znodes, "dry_run": dry_run}
        match path:
            case ["topics", _, "messages"]:
                rows = range(self.count)
                document["partitions"] = [{"partition": each, "before": 0, "after": 123_456_789} for each in rows]
            case ["groups", _, "offsets"]:
                row = {"topic": self.names[0], "before": 1_123_456_789, "after": 123_456_789}
                document["offsets"] = [{**row, "partition": each} for each in range(self.count)]
        if path == ["plans"]:
            document |= {
                "plan": self.plan(),
                "moves": [self.move(0)],
                "moves_count": 1,
                "bytes": 100_000_000,
                "eta_seconds": 5,
                "warnings": [HOSTILE],
                "brokers": [],
            }
        return 200, document


def _page(columns: Columns, name: str, rows: list[Document], query: Mapping[str, str]) -> tuple[int, Document]:
    """Return a page of a list, for the same parameters as in the product."""
    numbers = {each: int(query.get(each, default)) for each, default in (("limit", 1000), ("page", 1))}
    try:
        selection = columns.selection(Call(query={**query, **numbers}))
    except Problem as problem:
        return problem.status, {"title": problem.title, "detail": problem.detail, "what_to_do": problem.what_to_do}
    found = [row for row in rows if all(each.holds(row.get(each.column)) for each in selection.conditions)]
    found.sort(key=lambda row: row[columns.key])
    known = [row for row in found if row.get(selection.sort) is not None]
    known.sort(key=lambda row: row[selection.sort], reverse=selection.descending)
    found = [*known, *(row for row in found if row.get(selection.sort) is None)]
    first = (numbers["page"] - 1) * numbers["limit"]
    shown = [{field: row[field] for field in selection.fields} for row in found[first : first + numbers["limit"]]]
    return 200, {name: shown, "next": None, "total": len(found), "problems": [], "is_complete": True}


def hash_of(text: str) -> int:
    """Return a hash that is the same in all processes."""
    return sum(text.encode())


def _missing(what: str) -> tuple[int, Document]:
    return 404, {
        "title": "NOT_FOUND",
        "status": 404,
        "detail": f"there is no {what}",
        "what_to_do": "Look at the list.",
    }


def _why(kind: str, rest: Sequence[str]) -> Document:
    request = {"method": "POST", "path": "/v1/elections", "body": {"type": "preferred", "partitions": None}}
    decided = [
        {"at_ms": 1_700_000_000_000, "broker_id": 1, "controller_epoch": 7, "event": "BrokerDied", "change": HOSTILE}
    ]
    return {
        "subject": {kind: list(rest)},
        "state": "under_replicated",
        "summary": f"One copy is missing. {HOSTILE}",
        "decided": decided,
        "waits_for": ["Broker 3 to restart."],
        "you_can": [{"text": "Elect preferred leaders.", "request": request}],
        "facts": {"leader": 1, "isr": [1, 2]},
    }
