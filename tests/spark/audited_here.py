"""Audits in the test's process, without Spark."""

from __future__ import annotations

from kreplica.spark.pipelines.audit.audit import AuditOptions, compare_slices, make_plan
from kreplica.spark.pipelines.audit.plan import Plan, group_slices
from kreplica.spark.pipelines.audit.report import AuditReport, merge_slices


def audited(options: AuditOptions) -> AuditReport:
    """Run ``audit`` in this process."""
    return audited_plan(make_plan(options))


def audited_plan(plan: Plan) -> AuditReport:
    """Run all slices of a plan and return the report."""
    notes = plan.all_notes()
    found = {each: [own] for each, own in plan.found.items()}
    undone = 0
    for group in group_slices(plan.slices):
        for looked in compare_slices(list(enumerate(group))):
            found[group[looked.number].partition].append(looked.comparison)
            notes += looked.notes
            undone += not looked.is_done
    partitions = tuple(merge_slices(own) for own in found.values())
    return AuditReport("files", plan.cluster_id, plan.brokers, partitions, tuple(notes), 0, undone, 0, 1.0)
