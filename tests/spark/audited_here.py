"""Audits in this process, without Spark."""

from __future__ import annotations

from kreplica.spark.pipelines.audit.audit import AuditOptions, look_all, make_plan
from kreplica.spark.pipelines.audit.plan import Plan, grouped
from kreplica.spark.pipelines.audit.report import AuditReport, merged


def audited(options: AuditOptions) -> AuditReport:
    """As ``audit``."""
    return audited_plan(make_plan(options))


def audited_plan(plan: Plan) -> AuditReport:
    """What comes of a plan."""
    notes = plan.all_notes()
    found = {each: [own] for each, own in plan.found.items()}
    undone = 0
    for group in grouped(plan.slices):
        for looked in look_all(list(enumerate(group))):
            found[group[looked.number].partition].append(looked.comparison)
            notes += looked.notes
            undone += not looked.is_done
    partitions = tuple(merged(own) for own in found.values())
    return AuditReport("files", plan.cluster_id, plan.brokers, partitions, tuple(notes), 0, undone, 0, 1.0)
