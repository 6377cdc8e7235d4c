"""Reads plans from ZooKeeper in chunks; a plan has up to 100,000 steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kreplica.admin.http.problems import Problem
from kreplica.cluster import znodes
from kreplica.cluster.plans.documents import (
    PLAN_PREFIX,
    decode_outcomes,
    decode_plan,
    decode_progress,
    decode_steps,
)
from kreplica.cluster.plans.plan import Plan, PlanProgress, Step, StepOutcome
from kreplica.zookeeper import BatchLimits, NoNode, ZooKeeperClient, ZooKeeperError, list_all, read_all

HEADERS_AT_ONCE = BatchLimits(operations_max=100)

COUNTS_MAX = 100
"""Maximum number of plans whose step counts per chunk are cached; the counts never change."""


@dataclass(frozen=True, slots=True)
class PlanRead:
    """A plan's header and its progress.

    :param version: version of the header's znode.
    :param progress_version: version of the znode with the totals; -1 if it does not exist.
    """

    plan: Plan
    version: int
    progress: PlanProgress
    progress_version: int


@dataclass(frozen=True, slots=True)
class NumberedStep:
    """A step with its outcome.

    :param number: the position among all steps of the plan, from 0.
    """

    number: int
    step: Step
    outcome: StepOutcome


class PlanReader:
    """Reads plans.

    :param client: the broker's ZooKeeper session.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._counts: dict[str, list[int]] = {}

    async def ids(self) -> list[str]:
        """Return the IDs of all plans, oldest first."""
        return sorted(name for name in await self._client.get_children(znodes.PLANS) if name.startswith(PLAN_PREFIX))

    async def plans(self, plan_ids: Sequence[str]) -> list[PlanRead]:
        """Return the plans with these IDs; missing plans are omitted."""
        paths = [path for each in plan_ids for path in (znodes.plan_path(each), znodes.plan_progress_path(each))]
        responses = await read_all(self._client, paths, HEADERS_AT_ONCE)
        pairs = zip(plan_ids, responses[::2], responses[1::2], strict=True)
        found = []
        for plan_id, header, totals in pairs:
            read = _plan_of(plan_id, header, totals)
            if read is not None:
                found.append(read)
        return found

    async def plan(self, plan_id: str) -> PlanRead:
        """Return a plan.

        :raise Problem: 404 if it does not exist.
        """
        found = await self.plans([plan_id]) if plan_id.startswith(PLAN_PREFIX) and "/" not in plan_id else []
        if not found:
            raise Problem(
                404, "PLAN_NOT_FOUND", f"plan {plan_id!r} does not exist", what_to_do="GET /v1/plans lists all plans."
            )
        return found[0]

    async def open_plans(self) -> list[PlanRead]:
        """Return the plans that have not ended."""
        return [each for each in await self.plans(await self.ids()) if not each.plan.state.is_ended]

    # --- steps -------------------------------------------------------------------------------------------------------

    async def chunk_numbers(self, plan_id: str) -> list[int]:
        """Return the numbers of the chunks of a plan's steps, in order."""
        (names,) = await list_all(self._client, [znodes.plan_steps_path(plan_id)])
        return [] if isinstance(names, ZooKeeperError) else sorted(int(name) for name in names)

    async def steps(self, plan_id: str, first: int = 0) -> AsyncIterator[NumberedStep]:
        """Yield the steps from number ``first`` on, each with its outcome; chunks are read on demand."""
        number = 0
        counts = self._counts.setdefault(plan_id, [])
        while len(self._counts) > COUNTS_MAX:
            del self._counts[next(iter(self._counts))]
        for position, chunk in enumerate(await self.chunk_numbers(plan_id)):
            if position < len(counts) and number + counts[position] <= first:
                number += counts[position]
                continue
            steps, outcomes = await self._chunk(plan_id, chunk)
            if position == len(counts):
                counts.append(len(steps))
            for step, outcome in zip(steps, outcomes, strict=True):
                if number >= first:
                    yield NumberedStep(number, step, outcome)
                number += 1

    async def unfinished_steps(self, plan_id: str) -> AsyncIterator[NumberedStep]:
        """Yield the steps that are waiting or in progress; a chunk without such steps is not read."""
        number = 0
        for chunk in await self.chunk_numbers(plan_id):
            path = znodes.plan_progress_path(plan_id, chunk)
            (outcomes_response,) = await read_all(self._client, [path])
            if not isinstance(outcomes_response, ZooKeeperError):
                decoded = decode_outcomes(path, outcomes_response[0])
                if not any(outcome.state.is_open for outcome in decoded):
                    number += len(decoded)
                    continue
            steps, outcomes = await self._chunk(plan_id, chunk)
            for step, outcome in zip(steps, outcomes, strict=True):
                if outcome.state.is_open:
                    yield NumberedStep(number, step, outcome)
                number += 1

    async def _chunk(self, plan_id: str, chunk: int) -> tuple[Sequence[Step], Sequence[StepOutcome]]:
        paths = [znodes.plan_steps_path(plan_id, chunk), znodes.plan_progress_path(plan_id, chunk)]
        steps_response, outcomes_response = await read_all(self._client, paths)
        if isinstance(steps_response, ZooKeeperError):
            return (), ()  # it was deleted concurrently
        steps = decode_steps(paths[0], steps_response[0])
        if isinstance(outcomes_response, ZooKeeperError):
            return steps, [StepOutcome()] * len(steps)
        return steps, decode_outcomes(paths[1], outcomes_response[0])

    # --- znodes ------------------------------------------------------------------------------------------------------

    async def znodes_of(self, plan_id: str) -> list[str]:
        """Return all znodes of a plan, children before parents."""
        parents = [znodes.plan_steps_path(plan_id), znodes.plan_progress_path(plan_id)]
        found: list[str] = []
        for parent, names in zip(parents, await list_all(self._client, parents), strict=True):
            if not isinstance(names, ZooKeeperError):
                found += [f"{parent}/{name}" for name in sorted(names)]
                found.append(parent)
        return [*found, znodes.plan_path(plan_id)]


def _plan_of(plan_id: str, header: object, totals: object) -> PlanRead | None:
    """Decode a plan; return None if it does not exist.

    :raise ZnodeError: a znode is malformed.
    """
    if not isinstance(header, tuple):
        assert isinstance(header, NoNode) or not isinstance(header, ZooKeeperError), header
        return None
    plan = decode_plan(plan_id, header[0])
    if not isinstance(totals, tuple):
        return PlanRead(plan, header[1].version, PlanProgress(waiting=plan.steps_count, bytes=plan.bytes), -1)
    progress = decode_progress(znodes.plan_progress_path(plan_id), totals[0])
    return PlanRead(plan, header[1].version, progress, totals[1].version)
