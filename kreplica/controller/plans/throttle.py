"""Maintains the znode with the replication throttle that the active plans request.

Every broker watches ``/kreplica/plan_throttle``.  The active controller writes it when its term starts and whenever a
plan starts, ends or is patched, so the throttle ends with the last plan that requests it, despite failures.
"""

from __future__ import annotations

from collections.abc import Iterable

from kreplica.cluster import znodes
from kreplica.cluster.plans.throttle import decode_throttle, encode_throttle
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.term import ControllerTerm
from kreplica.zookeeper import NoNode


def rate_of(runs: Iterable[RunningPlan]) -> int | None:
    """Return the lowest rate requested by any of these plans, in bytes per second, or None."""
    rates = [run.plan.throttle_bytes_per_second for run in runs]
    return min((rate for rate in rates if rate is not None), default=None)


async def read_throttle(term: ControllerTerm) -> None:
    """Read the znode that an earlier controller left."""
    try:
        data, _ = await term.client.get_data(znodes.PLAN_THROTTLE)
        term.context.plan_throttle = decode_throttle(data)
    except (NoNode, znodes.ZnodeError):
        term.context.plan_throttle = 0  # not a valid rate, so that it is written again


async def reconcile_throttle(term: ControllerTerm) -> None:
    """Write the znode if it differs from the rate of the active plans."""
    context = term.context
    rate = rate_of(context.plans.values())
    if rate != context.plan_throttle:
        await term.writes.put(znodes.PLAN_THROTTLE, encode_throttle(rate))
        context.plan_throttle = rate
