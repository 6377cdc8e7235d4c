"""Runs audits in the test's process, without Spark."""

from __future__ import annotations

from kreplica.spark.pipelines.audit.audit import AuditOptions, compare_slices, make_plan
from kreplica.spark.pipelines.audit.plan import Plan, group_slices
from kreplica.spark.pipelines.audit.report import AuditReport, merge_slices


def run_audit(options: AuditOptions) -> AuditReport:
    """Run an audit, and return its report."""
    return run_plan(make_plan(options))


def run_plan(plan: Plan) -> AuditReport:
    """Run all slices of a plan, and return the report."""
    notes = plan.all_notes()
    found = {each: [own] for each, own in plan.found.items()}
    unfinished_count = 0
    for group in group_slices(plan.slices):
        for result in compare_slices(list(enumerate(group))):
            found[group[result.number].partition].append(result.comparison)
            notes += result.notes
            unfinished_count += not result.is_done
    partitions = tuple(merge_slices(own) for own in found.values())
    return AuditReport("files", plan.cluster_id, plan.brokers, partitions, tuple(notes), 0, unfinished_count, 0, 1.0)
