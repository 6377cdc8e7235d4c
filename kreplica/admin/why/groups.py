"""Explains the state of a group from its coordinator's facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from kreplica.admin.health.texts import duration_text, time_text
from kreplica.admin.why.explanation import Advice, Explanation
from kreplica.admin.why.partition_facts import OpenTransaction

NAMED_MAX = 5
"""Maximum number of partitions that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class GroupWait:
    """An event for which the group waits, usually an action of one member.

    :param what: ``join``, ``sync``, ``revoke`` or ``come``.
    :param member: a description of the member; empty if the wait is for no particular member.
    :param until_ms: the end of the wait; None if unlimited.
    """

    what: str
    member: str
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """The progress of a group in one partition.

    :param committed_offset: None if the group has never committed an offset; the lag is then the number of all records.
    :param status: ``OK``, ``WARN`` (lag grows), ``STALLED`` (commits the same offset), ``STOPPED`` (commits nothing).
    :param transactions: open transactions, if they were requested.
    """

    topic: str
    partition: int
    committed_offset: int | None
    committed_at_ms: int | None
    log_end_offset: int | None
    lag: int | None
    status: str | None
    leader: int | None = None
    transactions: Sequence[OpenTransaction] = ()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts about a group.

    :param state: the state shown by Kafka's tools.
    :param members: None if unknown.
    :param silent: members without a heartbeat for more than half of their session timeout, each with the time at
        which its session ends.
    :param no_commit_since_ms: time since which nothing was committed although there was lag; None if members commit.
    :param read_at_ms: time at which the facts were read.
    """

    group: str
    type: str
    state: str
    coordinator: int
    members: int | None
    waits: Sequence[GroupWait] = ()
    silent: Mapping[str, int] = field(default_factory=dict)
    partitions: Sequence[GroupPartition] = ()
    no_commit_since_ms: int | None = None
    read_at_ms: int = 0


REBALANCES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

_WAIT_TEXTS = {
    "join": "{member} to rejoin, which a consumer does when it polls",
    "sync": "{member} to request its assignment, which a consumer does when it polls",
    "revoke": "{member} to revoke partitions, which a consumer does when it polls",
    "come": "{member} to join, because the group is new",
}


def explain_group(facts: GroupFacts, problems: Sequence[str] = ()) -> Explanation:
    """Explain a group.

    :param facts: facts from the group's coordinator.
    """
    state, summary = _state_and_summary(facts)
    if state in ("empty", "stopped") and facts.no_commit_since_ms is not None:
        length = duration_text(facts.read_at_ms - facts.no_commit_since_ms)
        summary += f" No commit since {time_text(facts.no_commit_since_ms)} ({length})."
    return Explanation(
        subject=f"group {facts.group}",
        state=state,
        summary=summary,
        waits_for=list(_waits_for(facts)),
        you_can=list(_advice(facts, state)),
        facts=_document(facts),
        problems=problems,
    )


def _state_and_summary(facts: GroupFacts) -> tuple[str, str]:
    subject_text = f"Group {facts.group}, which broker {facts.coordinator} coordinates,"
    if facts.state in REBALANCES:
        return "rebalancing", f"{subject_text} is rebalancing (state {facts.state})."
    behind = _lag_text(facts.partitions)
    if facts.state == "Empty":
        return "empty", f"{subject_text} has no members, so it reads nothing; {behind}."
    leaderless = [each for each in facts.partitions if each.leader is None]
    if leaderless:
        return "leaderless", f"{subject_text} cannot read {_names(leaderless)} because there is no leader; {behind}."
    held_back = [each for each in facts.partitions if each.lag and each.transactions]
    if held_back:
        text = f"{subject_text} may be blocked by an open transaction in {_names(held_back)}; {behind}."
        return "open_transaction", text
    for status, state, text in (
        ("STOPPED", "stopped", "no longer commits in"),
        ("STALLED", "stalled", "repeatedly commits the same offset in"),
        ("WARN", "falling_behind", "falls further behind in"),
    ):
        rows = [each for each in facts.partitions if each.status == status]
        if rows:
            return state, f"{subject_text} {text} {_names(rows)}; {behind}."
    if facts.silent:
        return "silent", f"{subject_text} has members without recent heartbeats; {behind}."
    return "stable", f"{subject_text} is in state {facts.state}; {behind}."


def _lag_text(partitions: Sequence[GroupPartition]) -> str:
    lag, without_commit = _lag(partitions), _lag_without_commit(partitions)
    if not lag:
        return "it has no lag"
    text = "its lag is 1 record" if lag == 1 else f"its lag is {lag:,} records"
    if lag == 1 or not without_commit:
        return text
    share = "all" if without_commit == lag else f"{without_commit:,}"
    return f"{text}, {share} of them in partitions without a committed offset"


def _lag(partitions: Sequence[GroupPartition]) -> int:
    return sum(each.lag for each in partitions if each.lag is not None)


def _lag_without_commit(partitions: Sequence[GroupPartition]) -> int:
    return _lag([each for each in partitions if each.committed_offset is None])


def _waits_for(facts: GroupFacts) -> Iterator[str]:
    for wait in facts.waits:
        until = f", until {time_text(wait.until_ms)} at the latest" if wait.until_ms is not None else ""
        yield _capital(_WAIT_TEXTS[wait.what].format(member=wait.member or "more members")) + f"{until}."
    for member, until_ms in facts.silent.items():
        yield f"A heartbeat of {member}; its session times out at {time_text(until_ms)}."
    for each in facts.partitions:
        for transaction in each.transactions if each.lag else ():
            wrote = transaction.last_written_ms
            since = f", last written at {time_text(wrote)}" if wrote >= 0 else ""
            yield (
                f"The end of a transaction of producer ID {transaction.producer_id} in {each.name}{since}: "
                f"read-committed consumers cannot read beyond offset {transaction.first_offset}."
            )
        if each.leader is None:
            yield f"A leader of {each.name}."


def _advice(facts: GroupFacts, state: str) -> Iterator[Advice]:
    for wait in facts.waits:
        if wait.member:
            yield Advice(f"Check whether {wait.member} hangs between two polls; if so, stop it.")
    for each in [each for each in facts.partitions if each.leader is None or each.transactions][:NAMED_MAX]:
        path = f"/v1/why/partitions/{quote(each.topic)}/{each.partition}"
        yield Advice(f"Read the explanation of {each.name}.", ("GET", path))
    if state in ("stopped", "stalled"):
        yield Advice("Check the logs of its consumers for hangs or for a record that fails repeatedly.")
    if state == "falling_behind":
        yield Advice("Start more consumers, up to the number of partitions, or make them faster.")
    if state == "empty":
        name = quote(facts.group, safe="")
        yield Advice("Start the consumers of the group.")
        skip = ("POST", f"/v1/groups/{name}/offsets", {"to": {"kind": "latest"}})
        yield Advice("Skip the unread records: reset the offsets to the end.", skip)
        yield Advice("Delete the group and its offsets.", ("DELETE", f"/v1/groups/{name}"))


def _names(rows: Sequence[GroupPartition]) -> str:
    names = ", ".join(each.name for each in rows[:NAMED_MAX])
    more = len(rows) - NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _document(facts: GroupFacts) -> dict[str, object]:
    behind = sorted(facts.partitions, key=lambda each: -(each.lag or 0))
    return {
        "type": facts.type,
        "state": facts.state,
        "coordinator": facts.coordinator,
        "no_commit_since_ms": facts.no_commit_since_ms,
        "members": facts.members,
        "lag": _lag(facts.partitions),
        "lag_without_commit": _lag_without_commit(facts.partitions),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": each.committed_offset,
                "committed_at_ms": each.committed_at_ms,
                "log_end_offset": each.log_end_offset,
                "lag": each.lag,
                "status": each.status,
                "leader": each.leader,
            }
            for each in behind[:100]
        ],
    }
