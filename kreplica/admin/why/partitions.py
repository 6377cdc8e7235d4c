"""Explains the state of a partition from its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kreplica.admin.health.faults import BROKER_ONLY_KINDS, CERTIFICATE_KINDS, KINDS, PUBLISHED_KINDS
from kreplica.admin.health.texts import brokers_text, bytes_text, time_text
from kreplica.admin.why.explanation import Advice, Document, Explanation
from kreplica.admin.why.partition_facts import PartitionFacts
from kreplica.cluster.eligible_leaders import required_isr_size
from kreplica.model import LeaderAndIsr


def explain_partition(
    facts: PartitionFacts,
    decided: Sequence[Document],
    left_ms: Mapping[int, int],
    problems: Sequence[str],
    faults: Mapping[int, Sequence[Document]],
) -> Explanation:
    """Explain a partition.

    :param decided: the known decisions, newest first.
    :param left_ms: when each absent broker left, in milliseconds since 1970.
    :param faults: by broker, documents of the faults that affect its replica.
    """
    relevant_faults = {broker: _relevant(facts, faults.get(broker, ())) for broker in facts.replicas}
    explainer = _PartitionExplainer(facts, decided, left_ms, relevant_faults)
    state, summary = explainer.state_and_summary()
    return Explanation(
        subject=f"partition {facts.key}",
        state=state,
        summary=summary,
        waits_for=list(explainer.waits_for()),
        you_can=list(explainer.advice(state)),
        decided=decided,
        facts={**_facts_document(facts), "faults": [fault for each in relevant_faults.values() for fault in each]},
        problems=problems,
    )


_REJECTING = ("full_disk", "rejected_appends", "damaged_log", "zookeeper_lost")
"""Faults of a leader that make it reject some requests; such a fault is shown as the state of the partition."""

_NOT_ABOUT_REPLICAS = (*PUBLISHED_KINDS, *CERTIFICATE_KINDS, *BROKER_ONLY_KINDS)
"""Kinds of faults that are not shown for a single replica."""


def _relevant(facts: PartitionFacts, faults: Sequence[Document]) -> list[Document]:
    """Return the faults to show; the throttle of a plan is explained with the plan."""
    is_throttled_by_plan = facts.plan is not None and facts.plan.throttle_bytes_per_second is not None
    hidden = {*_NOT_ABOUT_REPLICAS, *(["throttled_replicas"] if is_throttled_by_plan else [])}
    return [fault for fault in faults if fault["kind"] not in hidden]


class _PartitionExplainer:
    """Derives the parts of a partition's explanation from its facts; ``faults`` are those of its replicas' brokers."""

    def __init__(
        self,
        facts: PartitionFacts,
        decided: Sequence[Document],
        left_ms: Mapping[int, int],
        faults: Mapping[int, Sequence[Document]],
    ) -> None:
        self._facts = facts
        self._decided = decided
        self._left_ms = left_ms
        self._faults = faults

    @property
    def _state(self) -> LeaderAndIsr:
        assert self._facts.state is not None
        return self._facts.state

    # --- state -------------------------------------------------------------------------------------------------------

    def state_and_summary(self) -> tuple[str, str]:
        state, summary = self._state_and_summary()
        if self._facts.state is None or state == "deleting":
            return state, summary
        other_faults = [fault["text"] for fault in self._faults.get(self._state.leader, ()) if fault["kind"] != state]
        return state, " ".join([summary, *other_faults])

    def _state_and_summary(self) -> tuple[str, str]:
        facts, key = self._facts, self._facts.key
        if facts.is_deleting:
            return "deleting", f"Topic {key.topic} is being deleted: {key} can no longer be read or written."
        if facts.state is None:
            if facts.online:
                return "new", f"{key} has no leader yet: it was just created."
            dead = brokers_text(facts.replicas)
            return "new", f"{key} never had a leader: its replicas ({dead}) have not been alive since it was created."
        if self._state.leader < 0:
            return "offline", self._why_offline()
        leads = f"Broker {self._state.leader} leads {key}"
        for fault in self._faults.get(self._state.leader, ()):
            if fault["kind"] in _REJECTING:
                return fault["kind"], f"{leads}, but rejects requests. {fault['text']}"
        shortage = self._isr_shortage()
        if shortage:
            return "under_min_isr", f"{leads}, but {shortage}"
        if key.partition in facts.assignment.read_only:
            return "read_only", f"{leads}; it is being removed: its records can be read, but producers are rejected."
        if facts.is_moving:
            return "moving", f"{leads}, and its replicas are being moved: {self._move()}."
        behind = self._behind()
        if behind:
            return "under_replicated", f"{leads}, and {brokers_text(behind)} {_is_or_are(behind)} not in sync."
        if facts.transactions:
            return "open_transaction", f"{leads}, all replicas are in sync, and {self._transaction_text()}"
        if self._state.leader != facts.replicas[0]:
            first = facts.replicas[0]
            return "not_preferred", f"{leads}, all replicas are in sync, but the preferred leader is broker {first}."
        return "healthy", f"{leads}, and all replicas are in sync."

    def _why_offline(self) -> str:
        facts, state = self._facts, self._state
        candidates = [*state.isr, *(r for r in state.eligible_leader_replicas if r not in state.isr)]
        other_replicas = [broker for broker in facts.online if broker not in candidates]
        replicas, are = ("replica", "is") if len(candidates) == 1 else ("replicas", "are")
        reason = f"{facts.key} has no leader: the {replicas} with all acknowledged records "
        reason += f"({brokers_text(candidates)}) {are} unavailable"
        if other_replicas and not facts.configs.unclean_allowed:
            also = "may lack records and cannot become leader because unclean.leader.election.enable is false"
            return f"{reason}; {brokers_text(other_replicas)} {also}."
        return f"{reason}."

    def _isr_shortage(self) -> str:
        in_sync, needed = len(self._state.isr), self._facts.configs.min_insync_replicas
        if in_sync >= required_isr_size(needed, len(self._facts.replicas)):
            return ""
        return (
            f"only {in_sync} of its replicas {'is' if in_sync == 1 else 'are'} in sync and min.insync.replicas is "
            f"{needed}: producers with acks=all get NOT_ENOUGH_REPLICAS."
        )

    def _move(self) -> str:
        adding, removing = self._facts.adding, [b for b in self._facts.removing if b in self._facts.replicas]
        parts = [f"to {brokers_text(adding)}"] if adding else []
        parts += [f"away from {brokers_text(removing)}"] if removing else []
        return ", ".join(parts)

    def _behind(self) -> list[int]:
        return [broker for broker in self._facts.replicas if broker not in self._state.isr]

    def _transaction_text(self) -> str:
        first = self._facts.transactions[0]
        return (
            f"a transaction of producer ID {first.producer_id} is open; read-committed consumers cannot "
            f"read beyond offset {first.first_offset}."
        )

    # --- waits_for ---------------------------------------------------------------------------------------------------

    def waits_for(self) -> Iterator[str]:
        facts = self._facts
        if facts.controller_id < 0:
            yield "The election of a controller."
        if facts.is_deleting:
            yield from self._unavailable(facts.replicas, "to restart and delete its files")
            return
        if facts.state is None or self._state.leader < 0:
            candidates = facts.replicas if facts.state is None else self._state.isr
            yield from self._unavailable(candidates, "to restart")
            yield from self._fault_texts(facts.replicas)
            return
        for broker in self._behind():
            yield self._catching_up(broker)
        yield from self._fault_texts([broker for broker in facts.replicas if broker != self._state.leader])
        if facts.plan is not None and not facts.is_moving and not facts.plan.state.is_ended:
            at_once = facts.plan.moves_at_once
            yield f"Other moves of {facts.plan.plan_id}, which runs at most {at_once} moves per broker at a time."
        yield from self._unanswered_commands()
        for each in facts.transactions:
            since = f", last written at {time_text(each.last_written_ms)}" if each.last_written_ms >= 0 else ""
            yield f"The end of a transaction of producer ID {each.producer_id} (epoch {each.producer_epoch}){since}."

    def _fault_texts(self, brokers: Sequence[int]) -> Iterator[str]:
        """Yield the faults that must end before replicas can catch up or lead."""
        for broker in brokers:
            for fault in self._faults.get(broker, ()):
                yield f"The end of this fault: {fault['text']}"

    def _unavailable(self, brokers: Sequence[int], action: str) -> Iterator[str]:
        for broker in brokers:
            if broker not in self._facts.live:
                since = f" (it left at {time_text(self._left_ms[broker])})" if broker in self._left_ms else ""
                yield f"Broker {broker} {action}{since}."
            elif broker in self._facts.failed_replicas:
                yield f"Broker {broker} to restart with a working log directory."

    def _catching_up(self, broker: int) -> str:
        facts = self._facts
        for text in self._unavailable([broker], "to restart and catch up"):
            return text
        missing = f"Broker {broker} to catch up"
        total, copied = facts.sizes.get(self._state.leader), facts.sizes.get(broker)
        if total is not None and copied is not None:
            missing += f": it has {bytes_text(min(copied, total))} of {bytes_text(total)}"
        throttle = facts.plan.throttle_bytes_per_second if facts.plan is not None else None
        if throttle is not None and facts.plan is not None and broker in facts.adding:
            missing += f", at no more than {bytes_text(throttle)} per second (throttle of {facts.plan.plan_id})"
        return f"{missing}."

    def _unanswered_commands(self) -> Iterator[str]:
        for decision in self._decided[:1]:
            silent = [broker for broker in decision["unanswered"] if broker in self._facts.replicas]
            if silent:
                at = time_text(decision["at_ms"])
                yield f"{brokers_text(silent).capitalize()} to respond to the controller's command from {at}."

    # --- you_can -----------------------------------------------------------------------------------------------------

    def advice(self, state: str) -> Iterator[Advice]:
        facts, key = self._facts, self._facts.key
        dead = [broker for broker in facts.replicas if broker not in facts.live]
        for broker in dead:
            yield Advice(f"Start broker {broker}.")
        for broker in facts.failed_replicas:
            yield Advice(f"Repair the failed log directory of broker {broker}, then restart the broker.")
        if state == "offline" and facts.online:
            row = {"topic": key.topic, "partition": key.partition}
            yield Advice(
                f"Make {brokers_text(facts.online[:1])} the leader by an unclean election; acknowledged records may be "
                "lost.",
                ("POST", "/v1/elections", {"type": "unclean", "partitions": [row]}),
            )
        if state == "under_min_isr":
            yield Advice(
                f"Set min.insync.replicas to {len(self._state.isr)}; new records are lost if all in-sync replicas "
                "fail.",
                (
                    "PATCH",
                    f"/v1/configs/topics/{key.topic}",
                    {"set": {"min.insync.replicas": str(len(self._state.isr))}},
                ),
            )
        if state == "not_preferred":
            rows = [{"topic": key.topic, "partition": key.partition}]
            yield Advice(
                f"Make broker {facts.replicas[0]} the leader.",
                ("POST", "/v1/elections", {"type": "preferred", "partitions": rows}),
            )
        yield from self._replace(state, dead)
        yield from self._plan_advice()
        kinds = dict.fromkeys(fault["kind"] for faults in self._faults.values() for fault in faults)
        for kind in kinds:
            if kind in KINDS:
                yield Advice(KINDS[kind].advice)
        if facts.transactions:
            yield Advice(
                f"Stop the producer with ID {facts.transactions[0].producer_id}, or restart it with the same "
                "transactional ID, which ends the transaction. Otherwise it ends after transaction.timeout.ms."
            )

    def _replace(self, state: str, dead: Sequence[int]) -> Iterator[Advice]:
        facts, key = self._facts, self._facts.key
        free = [broker for broker in facts.live if broker not in facts.replicas]
        if state not in ("under_min_isr", "under_replicated") or facts.is_moving or not dead or len(free) < len(dead):
            return
        allowed = [broker for broker in free if broker not in facts.cordoned]
        missing = len(dead) - len(allowed)
        if missing > 0:
            for broker in [broker for broker in free if broker in facts.cordoned][:missing]:
                yield Advice(
                    f"Uncordon broker {broker}, so that it can replace {brokers_text(dead)} in the replica list.",
                    ("DELETE", f"/v1/brokers/{broker}/cordon"),
                )
            return
        replacements = dict(zip(dead, allowed, strict=False))
        replicas = [replacements.get(broker, broker) for broker in facts.replicas]
        row = {"topic": key.topic, "partition": key.partition, "replicas": replicas}
        yield Advice(
            f"Replace {brokers_text(dead)} with {brokers_text(replacements.values())} in the replica list.",
            ("POST", "/v1/plans", {"kind": "reassign", "assignments": [row]}),
        )

    def _plan_advice(self) -> Iterator[Advice]:
        plan = self._facts.plan
        if plan is None:
            return
        path = f"/v1/plans/{plan.plan_id}"
        if plan.throttle_bytes_per_second is not None:
            body = {"throttle_bytes_per_second": 2 * plan.throttle_bytes_per_second}
            yield Advice(f"Double the throttle of {plan.plan_id}.", ("PATCH", path, body))
        cancel = ("POST", f"{path}/cancel", {"rollback": False})
        yield Advice(f"Cancel {plan.plan_id} and revert its ongoing moves.", cancel)


def _is_or_are(brokers: Sequence[int]) -> str:
    return "is" if len(brokers) == 1 else "are"


def _facts_document(facts: PartitionFacts) -> dict[str, Any]:
    state = facts.state
    return {
        "replicas": list(facts.replicas),
        "adding": list(facts.adding),
        "removing": list(facts.removing),
        "leader": state.leader if state is not None and state.leader >= 0 else None,
        "leader_epoch": state.leader_epoch if state is not None else None,
        "controller_epoch": state.controller_epoch if state is not None else None,
        "partition_epoch": state.partition_epoch if state is not None else None,
        "isr": list(state.isr) if state is not None else [],
        "eligible_leader_replicas": list(state.eligible_leader_replicas) if state is not None else [],
        "written_at_ms": facts.written_at_ms or None,
        "live_replicas": [broker for broker in facts.replicas if broker in facts.live],
        "failed_replicas": list(facts.failed_replicas),
        "min_insync_replicas": facts.configs.min_insync_replicas,
        "unclean_leader_election": facts.configs.unclean_allowed,
        "sizes": {str(broker): size for broker, size in sorted(facts.sizes.items())},
        "controller": facts.controller_id if facts.controller_id >= 0 else None,
        "plan": facts.plan.plan_id if facts.plan is not None else None,
        "open_transactions": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "first_offset": each.first_offset,
                "last_written_ms": each.last_written_ms,
            }
            for each in facts.transactions
        ],
    }
