"""Collects a partition's decisions from all brokers: each stores only those of its own terms as controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kreplica.model import LeaderAndIsr, TopicPartition

Document = dict[str, Any]


class Cause(Protocol):
    """The event that caused a decision; see ``kreplica.controller.history.decision_log.Cause``."""

    @property
    def text(self) -> str: ...

    @property
    def at_ms(self) -> int: ...

    @property
    def notified_brokers(self) -> Sequence[int]: ...


class Decision(Protocol):
    """A new state of a partition."""

    @property
    def cause(self) -> Cause: ...

    @property
    def after(self) -> LeaderAndIsr: ...

    @property
    def is_by_leader(self) -> bool: ...

    @property
    def change(self) -> str: ...

    @property
    def unanswered(self) -> Sequence[int]: ...


class Memory(Protocol):
    """The decisions that one broker remembers.

    :ivar left_ms: when this broker saw each absent broker leave, in milliseconds since 1970.
    """

    @property
    def broker_id(self) -> int: ...

    @property
    def left_ms(self) -> Mapping[int, int]: ...

    def decisions(self, partition: TopicPartition) -> Iterator[Decision]: ...


def remembered_decisions(memory: Memory, partition: TopicPartition) -> list[Document]:
    """Return this broker's decisions about a partition, newest first."""
    return [_document(memory.broker_id, decision) for decision in memory.decisions(partition)]


def _document(broker_id: int, decision: Decision) -> Document:
    state, by_leader = decision.after, decision.is_by_leader
    return {
        "at_ms": decision.cause.at_ms,
        "broker_id": state.leader if by_leader else broker_id,
        "controller_epoch": state.controller_epoch,
        "event": f"{decision.cause.text} (decided by the leader)" if by_leader else decision.cause.text,
        "change": decision.change,
        "leader_epoch": state.leader_epoch,
        "told": list(decision.cause.notified_brokers),
        "unanswered": list(decision.unanswered),
    }


def merge_decisions(documents: Iterable[Document]) -> list[Document]:
    """Merge the decisions of several brokers, newest first, without duplicates."""
    found: dict[tuple[object, ...], Document] = {}
    for document in documents:
        found.setdefault((document["leader_epoch"], document["change"], document["controller_epoch"]), document)
    return sorted(found.values(), key=_age, reverse=True)


def _age(document: Document) -> tuple[int, int, int]:
    epochs = (-1 if document[name] is None else document[name] for name in ("controller_epoch", "leader_epoch"))
    return (*epochs, document["at_ms"])


def decision_from_znode(state: LeaderAndIsr, written_at_ms: int) -> Document:
    """Return a decision derived from the state znode, for a state whose decision no broker has in memory."""
    leader = f"broker {state.leader}" if state.leader >= 0 else "no broker"
    return {
        "at_ms": written_at_ms,
        "broker_id": None,
        "controller_epoch": state.controller_epoch,
        "event": None,
        "change": f"{leader} leads in leader epoch {state.leader_epoch}, in sync {list(state.isr)}",
        "leader_epoch": state.leader_epoch,
        "told": [],
        "unanswered": [],
    }
