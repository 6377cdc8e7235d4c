"""The rate at which replicas that are being added are copied, as the plans that run ask for it: one znode.

Every broker watches ``/kreplica/plan_throttle``.  It follows from the plans: whichever controller is in office writes
it when it takes office and whenever a plan begins, ends or is patched, so it ends with the last plan that asks for it,
whoever died in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from kreplica.cluster import znodes
from kreplica.cluster.plans.throttle import decode_throttle, encode_throttle
from kreplica.controller.state.running_plan import PlanRun
from kreplica.controller.term import Office
from kreplica.zookeeper import NoNode


def rate_of(runs: Iterable[PlanRun]) -> int | None:
    """The lowest that any of these plans asks for, in bytes a second; None where none does."""
    rates = [run.plan.throttle_bytes_per_second for run in runs]
    return min((rate for rate in rates if rate is not None), default=None)


async def read_throttle(office: Office) -> None:
    """What an earlier controller left there."""
    try:
        data, _ = await office.client.get_data(znodes.PLAN_THROTTLE)
        office.context.plan_throttle = decode_throttle(data)
    except (NoNode, znodes.ZnodeError):
        office.context.plan_throttle = 0  # none that a plan could ask for: it is written anew


async def reconcile_throttle(office: Office) -> None:
    """Have the znode say what the plans that run ask for."""
    context = office.context
    rate = rate_of(context.plans.values())
    if rate != context.plan_throttle:
        await office.writes.put(znodes.PLAN_THROTTLE, encode_throttle(rate))
        context.plan_throttle = rate
