"""JSON encoding of active plans, based on their ZooKeeper documents."""

from __future__ import annotations

from typing import Any

from kreplica.cluster.plans import documents
from kreplica.controller.journal.value_json import Json
from kreplica.controller.state.running_plan import RunningPlan


def encode_run(run: RunningPlan) -> Json:
    return {
        "plan_id": run.plan.plan_id,
        "header": documents.encode_plan(run.plan).decode(),
        "version": run.version,
        "chunks": [documents.encode_steps(chunk).decode() for chunk in run.chunks],
        "outcomes": [documents.encode_outcomes(run.outcomes_of(n)).decode() for n in range(len(run.chunks))],
        "started_at_ms": run.started_at_ms,
        "noted": sorted(run.written_chunks),
        "unwritten": sorted(run.unwritten),
    }


def decode_run(value: dict[str, Any]) -> RunningPlan:
    plan_id: str = value["plan_id"]
    outcomes = [documents.decode_outcomes(plan_id, text.encode()) for text in value["outcomes"]]
    run = RunningPlan.with_counters(
        documents.decode_plan(plan_id, value["header"].encode()),
        value["version"],
        [documents.decode_steps(plan_id, text.encode()) for text in value["chunks"]],
        [outcome for chunk in outcomes for outcome in chunk],
        value["started_at_ms"],
        value["noted"],
    )
    run.unwritten = set(value["unwritten"])
    return run
