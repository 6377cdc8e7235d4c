"""Writes the znodes that create, change and delete a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.problems import Problem
from kreplica.admin.plans.plan_documents import header_version
from kreplica.admin.plans.reading import PlanRead, PlanReader
from kreplica.cluster import znodes
from kreplica.cluster.cordons import Cordon, encode_cordon
from kreplica.cluster.plans.documents import creation, decode_last_number, encode_last_number, encode_plan, plan_id
from kreplica.cluster.plans.draft import Draft
from kreplica.cluster.plans.plan import Plan, PlanState
from kreplica.zookeeper import Create, Delete, Operation, SetData, ZooKeeperClient, ZooKeeperError

ATTEMPTS_MAX = 5
"""Maximum number of attempts to write a header that the controller changes concurrently."""

Rows = list[dict[str, Any]]


class PlanWriter:
    """Writes plans.

    :param client: the broker's ZooKeeper session.
    """

    def __init__(self, client: ZooKeeperClient, plans: PlanReader) -> None:
        self._client = client
        self._plans = plans

    async def make(self, draft: Draft, now_ms: int, *, dry_run: bool) -> tuple[Plan, Rows]:
        """Write a plan in as many transactions as necessary; the controller starts it after the last one.

        :return: the plan and the znode writes; for chunks of steps after the first transaction, only their sizes.
        :raise Problem: 409 after a concurrent creation of a plan.
        """
        data, stat = await self._client.get_data(znodes.PLANS)
        number = decode_last_number(data) + 1
        plan = draft.plan(plan_id(number), now_ms)
        first, *others = (
            [Create(each.path, each.data) for each in batch] for batch in creation(plan, draft.steps, draft.encoded)
        )
        head: list[Operation] = [SetData(znodes.PLANS, encode_last_number(number), stat.version), *first]
        cordon = encode_cordon(Cordon(now_ms, f"drained by {plan.plan_id}"))
        head += [Create(znodes.cordoned_path(broker), cordon) for broker in draft.cordons]
        rows = await write(self._client, ZnodeWrites(head), dry_run=dry_run)
        if others:
            pending = SetData(znodes.plan_path(plan.plan_id), encode_plan(plan), 0)
            rows += await self._write_rest(plan, [*others, [pending]], dry_run=dry_run)
        return plan, rows

    async def _write_rest(self, plan: Plan, batches: Sequence[Sequence[Operation]], *, dry_run: bool) -> Rows:
        rows: Rows = []
        try:
            for batch in batches:
                rows += [_shorten(row) for row in await write(self._client, ZnodeWrites(batch), dry_run=dry_run)]
        except (Problem, ZooKeeperError):
            # An incomplete plan has no effect, but is removed so that nothing is left behind.
            await self._remove_quietly(plan.plan_id)
            raise
        return rows

    async def _remove_quietly(self, plan_id: str) -> None:
        try:
            operations = [Delete(path) for path in await self._plans.znodes_of(plan_id)]
            await self._client.multi(operations)
        except ZooKeeperError:
            pass  # the plan is listed as preparing and can be deleted

    async def patch(
        self, plan_id: str, body: dict[str, Any], if_match: str | None, *, dry_run: bool
    ) -> tuple[PlanRead, Rows]:
        """Change the settings of a plan that has not ended; ``body`` maps fields of the plan to their new values."""

        def changed(plan: Plan) -> Plan:
            if plan.state.is_ended:
                raise _ended(plan, "can no longer be changed")
            return replace(plan, **body)

        return await self._rewrite(plan_id, changed, if_match, dry_run=dry_run)

    async def cancel(
        self, plan_id: str, if_match: str | None, *, rollback: bool, dry_run: bool
    ) -> tuple[PlanRead, Rows]:
        """Request the cancellation of a plan from the controller."""

        def cancelled(plan: Plan) -> Plan:
            if plan.state.is_ended:
                raise _ended(plan, "can no longer be cancelled")
            if plan.state is PlanState.PREPARING:
                detail = f"{plan.plan_id} is not completely written"
                raise Problem(409, "PLAN_PREPARING", detail, what_to_do="Delete the plan if its writer failed.")
            return replace(plan, state=PlanState.CANCELLING, rollback=rollback)

        return await self._rewrite(plan_id, cancelled, if_match, dry_run=dry_run)

    async def _rewrite(
        self, plan_id: str, change: Callable[[Plan], Plan], if_match: str | None, *, dry_run: bool
    ) -> tuple[PlanRead, Rows]:
        for attempt in range(ATTEMPTS_MAX):
            read = await self._plans.plan(plan_id)
            if if_match is not None and header_version(if_match) != read.version:
                text = f"{plan_id} was changed concurrently; nothing was written"
                raise Problem(412, "PRECONDITION_FAILED", text, what_to_do="Read the plan again, then retry.")
            plan = change(read.plan)
            operation = SetData(znodes.plan_path(plan_id), encode_plan(plan), read.version)
            try:
                rows = await write(self._client, ZnodeWrites([operation]), dry_run=dry_run, if_match=if_match)
            except Problem as problem:
                if problem.status != 409 or attempt == ATTEMPTS_MAX - 1:
                    raise
                continue
            version = read.version if dry_run else read.version + 1
            return replace(read, plan=plan, version=version), rows
        raise AssertionError("the last attempt returns or raises")

    async def delete(self, plan_id: str, *, dry_run: bool) -> Rows:
        """Delete a plan that has ended or is incomplete."""
        read = await self._plans.plan(plan_id)
        if not (read.plan.state.is_ended or read.plan.state is PlanState.PREPARING):
            detail = f"{plan_id} is {read.plan.state.value}"
            raise Problem(409, "PLAN_NOT_ENDED", detail, what_to_do="Cancel the plan and wait until it has ended.")
        paths = await self._plans.znodes_of(plan_id)
        header = Delete(paths[-1], read.version)
        return await write(self._client, ZnodeWrites([*map(Delete, paths[:-1]), header]), dry_run=dry_run)


def _shorten(row: dict[str, Any]) -> dict[str, Any]:
    steps = row["data"].get("steps") if isinstance(row.get("data"), dict) else None
    if row["operation"] == "create" and isinstance(steps, list):
        return {**row, "data": "(1 step)" if len(steps) == 1 else f"({len(steps)} steps)"}
    return row


def _ended(plan: Plan, consequence: str) -> Problem:
    detail = f"{plan.plan_id} is {plan.state.value} and {consequence}"
    return Problem(409, "PLAN_ENDED", detail, what_to_do="Create another plan.")
