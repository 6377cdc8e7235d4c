"""How long a plan takes: before it begins by its throttle, afterwards by how it has gone so far."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.plan import PlanProgress, Step
from kreplica.cluster.plans.preview import copied

MILLISECONDS = 1000


def seconds_expected(steps: Sequence[Step], cluster: ClusterState, throttle: int | None) -> int | None:
    """Of a plan that has not begun: the time that the busiest broker needs at the throttle's rate.

    :param throttle: in bytes a second; without one nobody can say, unless nothing is copied at all.
    :return: whole seconds, or None where it cannot be known.
    """
    bytes_in, bytes_out = copied(steps, cluster)
    busiest = max([*bytes_in.values(), *bytes_out.values()], default=0)
    if busiest == 0:
        return 0 if all(step.bytes == 0 and not step.arriving for step in steps) else None
    return None if throttle is None else -(-busiest // throttle)


def seconds_left(progress: PlanProgress, now_ms: int) -> int | None:
    """Of a plan that runs: what is left, at the rate at which it has gone.

    Bytes are counted where sizes are known, else steps.

    :return: whole seconds; 0 where nothing is left; None while nothing is finished.
    """
    if progress.waiting == 0 and progress.moving == 0:
        return 0
    if progress.started_at_ms is None:
        return None
    done, total = progress.bytes_done, progress.bytes
    if total == 0:
        done, total = progress.finished, progress.waiting + progress.moving + progress.finished
    if done == 0 or total <= done:
        return None
    elapsed_ms = max(now_ms - progress.started_at_ms, 0)
    return -(-elapsed_ms * (total - done) // (done * MILLISECONDS))
