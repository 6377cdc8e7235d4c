"""Formats the entries of a controller's journal as text lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kreplica.cluster import documents, znodes
from kreplica.controller.journal.lines import EntryFields
from kreplica.controller.journal.value_json import decode_bytes
from kreplica.controller.state.context import ControllerContext
from kreplica.model import LeaderAndIsr, TopicPartition

TEXT_MAX = 160
"""Maximum number of characters shown of a znode's data."""

SHOWN_KINDS = frozenset((
    "call", "asked", "watch", "session", "answer", "answered", "late", "overflowed", "event", "failed",
    "took_office", "resigned", "settled", "timer", "exists", "get_data", "get_children", "multi_read", "create",
    "delete", "multi", "open", "close", "command", "unclean_allowed", "min_insync_replicas",
))  # fmt: skip
"""Kinds of entries that have a method of ``EntryText``."""

SHOWN_MAX = 20
"""Maximum number of operations shown."""


class EntryText:
    """Formats one file; call ``lines`` with every entry in order, because later entries refer to earlier ones.

    :param context: returns the replayed controller's current context; None if it is not the active controller.
    """

    def __init__(self, head: EntryFields, context: Callable[[], ControllerContext | None]) -> None:
        self._started_s = head["s"]
        self._began = datetime.fromtimestamp(head["wall_clock_ms"] / 1000, UTC)
        self._context = context
        self._brokers: dict[int, int] = {}
        self._commands: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        term = (head["state"] or {}).get("office") or {"channels": ()}
        for broker, channel in term["channels"]:
            self._brokers[channel["channel"]] = broker
            for command in channel["commands"]:
                self._commands[command["command"]] = f"broker {broker}: {command['api']}"

    def time(self, line: EntryFields) -> str:
        """Return the time of an input in UTC, by the broker's clock."""
        time = self._began + timedelta(seconds=line["s"] - self._started_s)
        return time.isoformat(timespec="milliseconds").removesuffix("+00:00")

    def lines(self, line: EntryFields) -> list[str]:
        """Return the lines of an entry; none for kinds of entries that are not shown."""
        kind = line.get("in") or line.get("out") or line.get("read")
        if kind not in SHOWN_KINDS:
            return []
        parts: str | list[str] = getattr(self, f"_{kind}")(line)
        return parts if isinstance(parts, list) else [parts]

    # --- inputs ------------------------------------------------------------------------------------------------------

    def _call(self, line: EntryFields) -> str:
        texts = {
            "start": "the broker starts and runs for election",
            "stand_for_election": "the broker has a new session and runs for election",
            "topic_settings_changed": "topic configurations changed",
            "stop": "the broker stops",
        }
        return f"{self.time(line)} {texts.get(line['method'], line['method'])}"

    def _asked(self, line: EntryFields) -> str:
        return f"{self.time(line)} request {line['question']}: {_event(line['event'])}"

    def _watch(self, line: EntryFields) -> str:
        kind, _, path = line["event"]
        return f"{self.time(line)} ZooKeeper: {path} {kind.removeprefix('NODE_').replace('_', ' ').lower()}"

    def _session(self, line: EntryFields) -> str:
        return f"{self.time(line)} the session with ZooKeeper is {line['state'].replace('_', ' ').lower()}"

    def _answer(self, line: EntryFields) -> str | list[str]:
        operation, path = line["of"], self._paths.pop(line["op"], "")
        if "error" in line:
            return f"    {self.time(line)} {operation} failed: {_error(line['error'])}"
        value = line["value"]
        if operation == "get_data":
            text = decode_bytes(value[0]).decode(errors="replace")
            return f"    {path} in version {value[1][4]}: {_truncate(text) or 'empty'}"
        if operation == "get_children":
            return f"    children of {path}: {_truncate(', '.join(sorted(value))) or 'none'}"
        if operation == "exists":
            return f"    {path} {'does not exist' if value is None else 'exists'}"
        return f"    {self.time(line)} done" if operation in ("multi", "create", "delete") else []

    def _answered(self, line: EntryFields) -> str:
        errors = [f"{topic}-{partition}: {error}" for topic, partition, error in line["refusals"]]
        error = "" if line["error"] == "NONE" else f" with error {line['error']}"
        command = self._commands.pop(line["command"], "a broker")
        partitions = f" with errors for {_first_of(errors)}" if errors else ""
        return f"{self.time(line)} {command} responded{error}{partitions}"

    def _late(self, line: EntryFields) -> str:
        return f"{self.time(line)} {self._commands.get(line['command'], 'a command')}: no response before the timeout"

    def _overflowed(self, line: EntryFields) -> str:
        return f"{self.time(line)} broker {self._brokers.get(line['channel'])}: too many commands without a response"

    # --- outputs -----------------------------------------------------------------------------------------------------

    def _event(self, line: EntryFields) -> str:
        return f"event {line['number']}: {_event(line['event'])}"

    def _failed(self, line: EntryFields) -> str:
        return f"  the event failed: {_error(line['error'])}"

    def _took_office(self, line: EntryFields) -> str:
        return f"  becomes the active controller in epoch {line['controller_epoch']}"

    def _resigned(self, _: EntryFields) -> str:
        return "  resigns"

    def _settled(self, line: EntryFields) -> str:
        return f"  answers request {line['question']}: {_truncate(str(line['answer']))}"

    def _timer(self, line: EntryFields) -> str | list[str]:
        if "out" not in line or not line["after_s"]:
            return []
        return f"  sets a timer of {line['after_s']:g} s"

    def _reads(self, line: EntryFields) -> list[str]:
        self._paths[line["op"]] = line["path"]
        return []  # the line of its answer contains the path

    _exists = _get_data = _get_children = _reads

    def _multi_read(self, line: EntryFields) -> str:
        paths = [path for _, path in line["reads"]]
        return f"  reads {len(paths)} znodes: {_first_of(paths, 3)}"

    def _create(self, line: EntryFields) -> str:
        return f"  creates {line['path']}: {line['data']}"

    def _delete(self, line: EntryFields) -> str:
        return f"  deletes {line['path']}"

    def _multi(self, line: EntryFields) -> list[str]:
        writes = [operation for operation in line["operations"] if operation[0] != "check"]
        lines = [f"  writes {len(writes)} znodes:"]
        lines += [f"    {self._write(operation)}" for operation in writes[:SHOWN_MAX]]
        if len(writes) > SHOWN_MAX:
            lines.append(f"    and {len(writes) - SHOWN_MAX} more")
        return lines

    def _write(self, operation: Sequence[Any]) -> str:
        name, path, *arguments = operation
        if name == "delete":
            return f"delete {path}"
        text = decode_bytes(arguments[0])
        partition = partition_of(path)
        if partition is None or not path.endswith("/state"):
            return f"{name} {path} {_truncate(text.decode(errors='replace'))}".rstrip()
        state = documents.decode_partition_state(path, text, 0)
        context = self._context()
        return f"{partition}: {change(context.leadership.get(partition) if context else None, state)}"

    def _open(self, line: EntryFields) -> str:
        self._brokers[line["channel"]] = line["broker"]
        return f"  connects to broker {line['broker']} (epoch {line['epoch']}) at {line['endpoint']}"

    def _close(self, line: EntryFields) -> str:
        return f"  disconnects from broker {self._brokers.get(line['channel'])}"

    def _command(self, line: EntryFields) -> str:
        broker = self._brokers.get(line["channel"])
        self._commands[line["command"]] = f"broker {broker}: {line['api']}"
        deletes = " and delete" if line["delete"] else ""
        partitions = _first_of(line["partitions"]) or "without partitions"
        return f"  sends to broker {broker}: {line['api']}{deletes} {partitions}"

    def _unclean_allowed(self, line: EntryFields) -> str:
        return f"  {line['of']}: unclean.leader.election.enable={str(line['value']).lower()}"

    def _min_insync_replicas(self, line: EntryFields) -> str:
        return f"  {line['of']}: min.insync.replicas={line['value']}"


def change(old: LeaderAndIsr | None, new: LeaderAndIsr) -> str:
    """Describe the change of a partition's state."""

    def part(name: str, old_value: object, new_value: object) -> str:
        is_shown = old_value is not None and old_value != new_value
        return f"{name} {old_value} -> {new_value}" if is_shown else f"{name} {new_value}"

    eligible = new.eligible_leader_replicas
    parts = [
        part("leader", old and old.leader, new.leader),
        part("epoch", old and old.leader_epoch, new.leader_epoch),
        part("in sync", old and list(old.isr), list(new.isr)),
    ]
    if eligible or (old is not None and old.eligible_leader_replicas):
        parts.append(part("eligible", old and list(old.eligible_leader_replicas), list(eligible)))
    return ", ".join(parts)


def partition_of(path: str) -> TopicPartition | None:
    """Return the partition of a znode below /brokers/topics/TOPIC/partitions; None for other znodes."""
    parts = path.removeprefix(f"{znodes.TOPICS}/").split("/")
    if not path.startswith(f"{znodes.TOPICS}/") or len(parts) < 3 or not parts[2].isdecimal():
        return None
    return TopicPartition(parts[0], int(parts[2]))


def _event(value: Sequence[Any]) -> str:
    name, arguments = value
    return " ".join([name, *(f"{key}={_truncate(str(argument))}" for key, argument in arguments.items())])


def _error(value: Sequence[Any]) -> str:
    if value[0] == "MultiFailed":
        return f"operation {value[1]}: {_error(value[2])}"
    return " ".join(str(item) for item in value if item)


def _first_of(texts: Sequence[str], count: int = SHOWN_MAX) -> str:
    more = f" and {len(texts) - count} more" if len(texts) > count else ""
    return ", ".join(texts[:count]) + more


def _truncate(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
