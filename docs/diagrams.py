"""Generates the parts of the pages that come from tables in the code: ``python docs/diagrams.py``.

A part is between ``<!-- from the code: NAME -->`` and ``<!-- end -->``.  ``tests/docs`` fails if a page differs from
the generated text.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from pathlib import Path

from kreplica.controller import event_types
from kreplica.controller.decisions import leader_election
from kreplica.controller.state import states
from kreplica.groups.classic.states import PREVIOUS as CLASSIC_PREVIOUS
from kreplica.groups.classic.states import State as ClassicState
from kreplica.transactions.states import PREVIOUS as TRANSACTION_PREVIOUS
from kreplica.transactions.states import TransactionState
from tests.support.mutations.guard import Guard, Place
from tests.support.mutations.guards import GUARDS

HERE = Path(__file__).parent
ROOT = HERE.parent
PART = re.compile(r"<!-- from the code: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def first_sentence(documented: object) -> str:
    """Return the first sentence of an object's docstring, on one line and escaped for a table."""
    text = " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", text)[0].rstrip(".").replace("``", "`").replace("|", "\\|")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# --- states -----------------------------------------------------------------------------------------------------------


def state_diagram(previous: Mapping[Enum, frozenset[Enum]], first: Enum) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for new, olds in previous.items():
        lines += [f"    {old.value} --> {new.value}" for old in type(new) if old in olds]
    return "\n".join([*lines, "```"])


def state_table(previous: Mapping[Enum, frozenset[Enum]]) -> str:
    rows = ((f"`{new.value}`", ", ".join(f"`{old.value}`" for old in type(new) if old in olds))
            for new, olds in previous.items())  # fmt: skip
    return table(("state", "previous states"), rows)


def partition_states() -> str:
    previous = states.PARTITION_PREVIOUS
    return f"{state_diagram(previous, states.PartitionState.NON_EXISTENT)}\n\n{state_table(previous)}"


def replica_states() -> str:
    previous = states.REPLICA_PREVIOUS
    return f"{state_diagram(previous, states.ReplicaState.NON_EXISTENT)}\n\n{state_table(previous)}"


def classic_group_states() -> str:
    """Return the diagram without Dead, which every state can reach."""
    previous = {new: olds for new, olds in CLASSIC_PREVIOUS.items() if new is not ClassicState.DEAD}
    return state_diagram(previous, ClassicState.EMPTY)


def transaction_states() -> str:
    previous = {new: olds for new, olds in TRANSACTION_PREVIOUS.items() if new is not TransactionState.DEAD}
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {TransactionState.EMPTY.title}"]
    for new, olds in previous.items():
        lines += [f"    {old.title} --> {new.title}" for old in TransactionState if old in olds]
    return "\n".join([*lines, "```"])


# --- events and selectors ---------------------------------------------------------------------------------------------


def controller_events() -> str:
    classes = (each for _, each in inspect.getmembers(event_types, inspect.isclass))
    kinds = (each for each in classes if issubclass(each, event_types.Event))
    bases = (event_types.Event, event_types.ControllerRequest)
    found = sorted((kind for kind in kinds if kind not in bases), key=line_of)
    return table(("event", "cause"), ((f"`{kind.__name__}`", first_sentence(kind)) for kind in found))


def leader_selectors() -> str:
    found = [f for name, f in inspect.getmembers(leader_election, inspect.isfunction) if name.startswith("elect_")]
    rows = ((f"`{f.__name__}`", first_sentence(f)) for f in sorted(found, key=line_of))
    return table(("function", "leader and ISR"), rows)


def line_of(definition: Callable[..., object] | type) -> int:
    return inspect.getsourcelines(definition)[1]


# --- rules ------------------------------------------------------------------------------------------------------------

RULES: Mapping[str, tuple[str, str, str]] = {
    "required in sync": (
        "A commit requires `min.insync.replicas` in-sync replicas, or the replication factor if that is smaller",
        "kreplica.cluster.eligible_leaders:required_isr_size",
        "tests/replication/test_replication_leader_state.py::test_topic_with_fewer_replicas_than_required",
    ),
    "commit rule": (
        "A record is committed when all counted replicas (see the rule *union*) have it",
        "kreplica.replication.leader.high_watermark:smallest_log_end_offset",
        "tests/replication/test_replication_high_watermark.py::test_high_watermark_is_the_smallest_log_end_offset",
    ),
    "high watermark advances": (
        "The high watermark does not advance while the ISR is too small or a replica outside it is eligible to lead",
        "kreplica.replication.leader.high_watermark:may_advance",
        "tests/replication/test_replication_high_watermark.py::test_high_watermark_does_not_advance",
    ),
    "eligible leaders": (
        "A replica that leaves and makes the ISR too small stays eligible to lead until the ISR is large enough",
        "kreplica.cluster.eligible_leaders:eligible_after",
        "tests/replication/test_replication_strong_isr.py::test_electable_replicas_have_all_committed_records",
    ),
    "union": (
        "While an ISR write is pending, the replicas of the old and of the new ISR are counted (KIP-497)",
        "kreplica.replication.leader.isr_membership:union",
        "tests/replication/test_replication_strong_isr.py::test_every_rule_is_needed",
    ),
    "joining: this epoch": (
        "A follower joins the ISR only after a fetch in the current leader epoch, which proves that its log matches",
        "kreplica.replication.leader.isr_membership:has_fetched_in_this_epoch",
        "tests/replication/test_replication_isr_membership.py::test_follower_without_a_fetch_in_this_epoch_does_not_join",
    ),
    "joining: committed": (
        "A follower joins the ISR only when it has every record below the high watermark",
        "kreplica.replication.leader.isr_membership:has_reached_high_watermark",
        "tests/replication/test_replication_strong_isr.py::test_every_rule_is_needed",
    ),
    "joining: epoch start": (
        "A follower joins the ISR only when it has every record that the leader had at the start of its epoch",
        "kreplica.replication.leader.isr_membership:has_reached_epoch_start",
        "tests/replication/test_replication_strong_isr.py::test_every_rule_is_needed",
    ),
    "joining: incarnation": (
        "A follower joins the ISR only if its broker is registered with the broker epoch of its fetches (KIP-903)",
        "kreplica.replication.leader.isr_membership:is_current_incarnation",
        "tests/replication/test_replication_isr_writes.py::test_stale_incarnation_joins_without_the_check",
    ),
    "leaving": (
        "A follower leaves the ISR if it has been behind the leader's log end for `replica.lag.time.max.ms`",
        "kreplica.replication.leader.isr_membership:is_lagging",
        "tests/replication/test_replication_isr_membership.py::test_slow_follower_lags_although_it_fetches",
    ),
    "conditional writes": (
        "A leader writes the ISR only if the state znode still has the version that the leader knows",
        "kreplica.replication.leader.isr_membership:expected_version",
        "tests/replication/test_replication_isr_writes.py::test_new_leader_would_be_overwritten_without_the_condition",
    ),
    "follower state per epoch": (
        "A leader forgets how far its followers have fetched at the start of each leader epoch",
        "kreplica.replication.leader.followers:is_of_epoch",
        "tests/replication/test_replication_leader_state.py::test_new_epoch_discards_follower_progress",
    ),
    "roles": (
        "A command restarts fetchers and resets follower state only if it starts a new leader epoch",
        "kreplica.replication.controller_fence:is_new_epoch",
        "tests/replication/test_replication_roles.py::test_follower_restarts_its_fetcher_in_each_epoch_only",
    ),
    "stale commands": (
        "A broker rejects a command that was sent to an earlier registration of this broker",
        "kreplica.replication.controller_fence:is_stale_broker_epoch",
        "tests/replication/test_replication_controller_fence.py::test_command_to_another_incarnation_is_refused",
    ),
    "lease": (
        "A leader with followers commits and acknowledges records only while its ZooKeeper session cannot have expired",
        "kreplica.replication.leader.leader_state:LeaderState.has_lease",
        "tests/replication/test_replication_leader_state.py::test_other_leader_meanwhile",
    ),
    "lost sessions": (
        "A broker whose ZooKeeper session has ended stops leading partitions that have other replicas",
        "kreplica.replication.partitions:Partitions.session_lost",
        "tests/testing/test_cluster_failures.py::test_a_new_session_does_not_restore_leadership",
    ),
    "truncation": (
        "A follower truncates its log to the longest prefix that it shares with the leader's log",
        "kreplica.replication.follower.truncation:truncation_offset",
        "tests/replication/test_replication_truncation.py::test_longest_common_prefix_remains",
    ),
    "controller epoch": (
        "A broker rejects commands of a controller that was replaced",
        "kreplica.replication.controller_fence:is_stale_controller_epoch",
        "tests/replication/test_replication_controller_fence.py::test_replaced_controller_is_refused",
    ),
    "order of commands": (
        "A broker rejects a command that arrives after a later command of the same controller",
        "kreplica.replication.controller_fence:is_overtaken",
        "tests/replication/test_replication_controller_fence.py::test_superseded_command_is_refused",
    ),
    "leader epoch of requests": (
        "A replica rejects requests with a leader epoch other than its own (KIP-320)",
        "kreplica.replication.controller_fence:is_of_leader_epoch",
        "tests/server/test_server_apis_fetch.py::test_leader_epochs_are_fenced",
    ),
    "lost logs": (
        "A restarted broker stays in ISRs only if its logs have lost nothing since a controller last saw it (KIP-966)",
        "kreplica.controller.decisions.state_changes:has_intact_logs",
        "tests/controller/test_controller_decisions.py::test_a_chain_of_clean_restarts_loses_nothing",
    ),
    "damaged replicas": (
        "A broker discards a damaged log only if another broker leads and this replica cannot be elected next",
        "kreplica.replication.damaged_replicas:may_discard_damaged_replica",
        "tests/replication/test_replication_damage.py::test_only_an_unneeded_replica_is_discarded",
    ),
}
"""Rules of replication: the statement, the function (module:function, or a module), and a test."""


def replication_rules() -> str:
    head = ("name", "rule", "function", "test", "scenario")
    return table(head, (rule_row(name, *where) for name, where in RULES.items()))


def rule_row(name: str, statement: str, where: str, test: str) -> tuple[str, ...]:
    module_name, function_name = where.split(":")
    module = importlib.import_module(module_name)
    assert not function_name or attrgetter(function_name)(module)
    source = f"{module_name.replace('.', '/')}.py"
    test_file, test_name = test.split("::")
    assert re.search(rf"def {test_name}\b", (ROOT / test_file).read_text()), f"{test} does not exist"
    return (
        name,
        statement,
        f"[`{function_name or module_name.rpartition('.')[2]}`](../../{source})",
        f"[`{test_name}`](../../{test_file})",
        ", ".join(dict.fromkeys(scenario_link(guard) for guard in GUARDS if removes(guard, where))) or "-",
    )


def removes(guard: Guard, where: str) -> bool:
    """Return True if the rule is the guard's first place; the other places would hide the effect of its removal."""
    return guard.places[0].where == where


def scenario_link(guard: Guard) -> str:
    """Return a link to the scenario that fails without the guard."""
    return f"[`{guard.scenario.__name__}`](../../{guard.scenario.__module__.replace('.', '/')}.py)"


def guards() -> str:
    """Return the table of guards that ``python -m tests.support.mutations`` removes."""
    rows = ((guard.name, ", ".join(place_link(place) for place in guard.places), scenario_link(guard),
             first_sentence(guard.scenario), guard.covered_by) for guard in GUARDS)  # fmt: skip
    return table(("guard", "removed function", "scenario", "description", "also covered by"), rows)


def place_link(place: Place) -> str:
    """Return a link to a function that a guard removes."""
    module_name, _, attribute = place.where.partition(":")
    return f"[`{attribute}`](../../{module_name.replace('.', '/')}.py)"


def leadership_fields() -> str:
    from kreplica.model import LeaderAndIsr

    return ", ".join(f"`{field.name}`" for field in fields(LeaderAndIsr))


def commands() -> str:
    """Return the reference of all commands of ``kreplica``."""
    from kreplica.cli.terminal.reference import reference

    return reference()


# --- pages ------------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[], str]] = {
    "partition-states": partition_states,
    "replica-states": replica_states,
    "classic-group-states": classic_group_states,
    "transaction-states": transaction_states,
    "controller-events": controller_events,
    "leader-selectors": leader_selectors,
    "replication-rules": replication_rules,
    "state-fields": leadership_fields,
    "guards": guards,
    "commands": commands,
}


def pages() -> list[Path]:
    """Return the pages with generated parts."""
    return sorted(page for page in HERE.rglob("*.md") if PART.search(page.read_text()))


def written(page: Path) -> str:
    """Return the page with its generated parts."""
    return PART.sub(lambda part: f"<!-- from the code: {part['name']} -->\n{PARTS[part['name']]()}\n<!-- end -->",
                    page.read_text())  # fmt: skip


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page))
