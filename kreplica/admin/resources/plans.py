"""``/v1/plans``: previews, creates, monitors, changes and cancels plans that move replicas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedMetadata
from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route
from kreplica.admin.http.schemas import STRING, page, written
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.plans.plan_documents import (
    CANCEL,
    MOVE,
    PATCH,
    PLAN,
    PREVIEW,
    REQUEST,
    broker_documents,
    copied_of,
    etag_of,
    move_document,
    plan_document,
)
from kreplica.admin.plans.plan_inputs import PlanInputs
from kreplica.admin.plans.reading import NumberedStep, PlanRead, PlanReader
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.admin.plans.writing import PlanWriter
from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.draft import Draft
from kreplica.cluster.plans.eta import expected_seconds
from kreplica.cluster.plans.plan import Plan, PlanProgress, StepOutcome, StepState
from kreplica.cluster.plans.preview import preview
from kreplica.cluster.plans.requests import read_request
from kreplica.runtime import Runtime
from kreplica.zookeeper import ZooKeeperClient

MOVES_SHOWN = 1000
"""Maximum number of moves in a preview."""

LISTED_MAX = 1000
MOVES_PAGE_MAX = 1000

MOVING_MEASURED_MAX = 200
"""Maximum number of ongoing moves whose progress is requested from brokers; that of further moves is unknown."""

STEPS_SEARCHED_MAX = 5000
"""Maximum number of unfinished steps searched for moves in progress; the controller starts steps in order."""

_NOT_FOUND = {404: "The plan does not exist."}
_CHANGED = {412: "The plan was changed since the ETag in If-Match was read."}
LIMIT_MOVES = Parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": MOVES_PAGE_MAX},
    "Maximum number of moves.",
    default=MOVES_PAGE_MAX,
)
AFTER_MOVE = Parameter("after", {"type": "string", "pattern": "^[0-9]{1,9}$"}, "Only moves with higher numbers.")
LIMIT_PLANS = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": LISTED_MAX}, "Maximum number of plans.", default=100
)
AFTER_PLAN = Parameter("after", STRING, "Only plans created before this one: `next` of the previous response.")


class Plans:
    """Plans in ZooKeeper, and drafts from the current cluster state."""

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        published: PublishedMetadata,
        registrations: Registrations,
        connections: BrokerConnections,
    ) -> None:
        self._runtime = runtime
        self._plans = PlanReader(client)
        self._sizes = ReplicaSizes(runtime.reactor.seconds, connections)
        self._writes = PlanWriter(client, self._plans)
        self._plan_inputs = PlanInputs(runtime, client, published, registrations, self._plans, self._sizes)

    def routes(self) -> Sequence[Route]:
        """Return the routes that show, create and change plans."""
        return (*self._views(), *self._changes())

    def _views(self) -> Sequence[Route]:
        plan_path = "/v1/plans/{plan}"
        return (
            Route(
                "GET",
                "/v1/plans",
                self.list_all,
                "All plans, the newest first.",
                response=page("plans", PLAN),
                query=(LIMIT_PLANS, AFTER_PLAN),
            ),
            Route("GET", plan_path, self.show, "A plan.", response=PLAN, problems=_NOT_FOUND),
            Route(
                "GET",
                f"{plan_path}/moves",
                self.moves,
                "A plan's moves, in the order in which they are started.",
                response=page("moves", MOVE),
                query=(LIMIT_MOVES, AFTER_MOVE),
                problems=_NOT_FOUND,
            ),
        )

    def _changes(self) -> Sequence[Route]:
        plan_path = "/v1/plans/{plan}"
        header = "/kreplica/plans/{plan}"
        return (
            Route(
                "POST",
                "/v1/plans",
                self.make,
                "Create a plan; with dry_run, preview it.",
                response=written(PREVIEW, title="PlanPreview"),
                status=201,
                body=REQUEST,
                znodes=(
                    "/kreplica/plans",
                    header,
                    f"{header}/steps",
                    f"{header}/steps/{{chunk}}",
                    f"{header}/progress",
                    "/kreplica/cordoned/{broker_id}",
                ),
                problems={
                    404: "The topic or partition does not exist.",
                    409: "These partitions are already being reassigned, or a plan was created concurrently.",
                },
            ),
            Route(
                "PATCH",
                plan_path,
                self.patch,
                "Change the throttle, the number of concurrent moves or the comment of a plan.",
                response=written(PLAN["properties"], title="PlanChanged"),
                body=PATCH,
                znodes=(header,),
                problems={**_NOT_FOUND, **_CHANGED, 409: "The plan has ended."},
            ),
            Route(
                "DELETE",
                plan_path,
                self.delete,
                "Delete a plan that has ended.",
                response=written({"id": STRING}, title="PlanDeleted"),
                znodes=(header, f"{header}/steps", f"{header}/progress"),
                problems={**_NOT_FOUND, 409: "The plan has not ended."},
            ),
            Route(
                "POST",
                f"{plan_path}/cancel",
                self.cancel,
                "Cancel a plan and revert its ongoing moves.",
                response=written(PLAN["properties"], title="PlanCancelled"),
                body=CANCEL,
                znodes=(header,),
                problems={**_NOT_FOUND, **_CHANGED, 409: "The plan has ended."},
            ),
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/plans``."""
        newest_first = sorted(await self._plans.ids(), reverse=True)
        after, limit = call.query["after"], call.query["limit"]
        remaining = [plan_id for plan_id in newest_first if after is None or plan_id < after]
        page = remaining[:limit]
        rows = [await self._document(read) for read in await self._plans.plans(page)]
        return JsonResponse({"plans": rows, "next": page[-1] if len(remaining) > limit else None})

    async def show(self, call: Call) -> JsonResponse:
        """``GET /v1/plans/{plan}``."""
        read = await self._plans.plan(call.path["plan"])
        document = await self._document(read)
        moving = read.progress.moving and not read.plan.state.is_ended
        # The progress of a copy changes without any change to a znode.
        return JsonResponse(
            document, etag=f"{etag_of(read)}.{document['progress']['bytes_done']}" if moving else etag_of(read)
        )

    async def moves(self, call: Call) -> JsonResponse:
        """``GET /v1/plans/{plan}/moves``."""
        plan_id, limit, after = call.path["plan"], call.query["limit"], call.query["after"]
        read = await self._plans.plan(plan_id)
        first = 0 if after is None else int(after) + 1
        rows: list[NumberedStep] = []
        async for row in self._plans.steps(plan_id, first):
            rows.append(row)
            if len(rows) == limit:
                break
        copied = await self._copied_bytes(rows)
        documents = [move_document(row, copied.get(row.number, copied_of(row, {}))) for row in rows]
        last = rows[-1].number if rows else 0
        more = bool(rows) and last + 1 < read.plan.steps_count
        return JsonResponse({"moves": documents, "next": str(last) if more else None})

    async def _document(self, read: PlanRead) -> dict[str, Any]:
        moved = 0
        if read.progress.moving and not read.plan.state.is_ended and read.plan.bytes:
            rows: list[NumberedStep] = []
            searched = 0
            async for row in self._plans.unfinished_steps(read.plan.plan_id):
                if row.outcome.state is StepState.MOVING:
                    rows.append(row)
                searched += 1
                if len(rows) >= read.progress.moving or searched == STEPS_SEARCHED_MAX:
                    break
            moved = sum(size or 0 for size in (await self._copied_bytes(rows)).values())
        return plan_document(read.plan, read.progress, self._runtime.wall_clock_ms(), bytes_moved=moved)

    async def _copied_bytes(self, rows: Sequence[NumberedStep]) -> dict[int, int | None]:
        """Return the bytes that each ongoing move has copied, by number."""
        moving = [row for row in rows if row.outcome.state is StepState.MOVING][:MOVING_MEASURED_MAX]
        replicas = [(row.step.key, broker) for row in moving for broker in row.step.receiving_brokers]
        sizes = await self._sizes.of(replicas) if replicas else {}
        return {
            row.number: copied_of(
                row, {b: sizes[row.step.key, b] for b in row.step.receiving_brokers if (row.step.key, b) in sizes}
            )
            for row in moving
        }

    # --- writing -----------------------------------------------------------------------------------------------------

    async def make(self, call: Call) -> JsonResponse:
        """``POST /v1/plans``."""
        request = read_request(call.body)
        draft, cluster = await self._plan_inputs.draft(request)
        plan, rows = await self._writes.make(draft, self._runtime.wall_clock_ms(), dry_run=call.dry_run)
        document = await self._runtime.offload.run(_preview, draft, cluster, plan)
        location = None if call.dry_run else f"/v1/plans/{plan.plan_id}"
        status = 200 if call.dry_run else 201
        return JsonResponse({**document, "dry_run": call.dry_run, "znodes": rows}, status=status, location=location)

    async def patch(self, call: Call) -> JsonResponse:
        """``PATCH /v1/plans/{plan}``."""
        read, rows = await self._writes.patch(call.path["plan"], call.body, call.if_match, dry_run=call.dry_run)
        return await self._written(read, rows, call)

    async def cancel(self, call: Call) -> JsonResponse:
        """``POST /v1/plans/{plan}/cancel``."""
        rollback = call.body.get("rollback", False)
        read, rows = await self._writes.cancel(
            call.path["plan"], call.if_match, rollback=rollback, dry_run=call.dry_run
        )
        return await self._written(read, rows, call)

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/plans/{plan}``."""
        plan_id = call.path["plan"]
        rows = await self._writes.delete(plan_id, dry_run=call.dry_run)
        return JsonResponse({"id": plan_id, "dry_run": call.dry_run, "znodes": rows})

    async def _written(self, read: PlanRead, rows: list[dict[str, Any]], call: Call) -> JsonResponse:
        document = await self._document(read)
        return JsonResponse({**document, "dry_run": call.dry_run, "znodes": rows}, etag=etag_of(read))


def _preview(draft: Draft, cluster: ClusterState, plan: Plan) -> dict[str, Any]:
    steps = draft.steps
    waiting = PlanProgress(waiting=len(steps), bytes=draft.bytes)
    moves = [
        move_document(NumberedStep(number, step, StepOutcome()), 0)
        for number, step in enumerate(islice(steps, MOVES_SHOWN))
    ]
    return {
        "plan": plan_document(plan, waiting, plan.created_at_ms),
        "moves": moves,
        "moves_count": len(steps),
        "bytes": draft.bytes,
        "eta_seconds": expected_seconds(steps, cluster, plan.throttle_bytes_per_second),
        "brokers": broker_documents(preview(steps, cluster)),
        "warnings": list(draft.warnings),
    }
