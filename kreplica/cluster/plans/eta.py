"""Expected duration of a plan: computed from the throttle before the plan starts, and then from its progress."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.plan import PlanProgress, Step
from kreplica.cluster.plans.preview import copied_bytes

MILLISECONDS = 1000


def expected_seconds(steps: Sequence[Step], cluster: ClusterState, throttle: int | None) -> int | None:
    """Return the expected duration of a plan that has not started.

    This is the time that the busiest broker needs at the throttled rate.

    :param throttle: bytes per second; None for no throttle, which makes the duration unknown unless nothing is copied.
    :return: whole seconds, or None if the duration is unknown.
    """
    bytes_in, bytes_out = copied_bytes(steps, cluster)
    busiest = max([*bytes_in.values(), *bytes_out.values()], default=0)
    if busiest == 0:
        return 0 if all(step.bytes == 0 and not step.receiving_brokers for step in steps) else None
    return None if throttle is None else -(-busiest // throttle)


def seconds_left(progress: PlanProgress, now_ms: int) -> int | None:
    """Return the remaining time of a running plan, from its rate so far.

    The rate is measured in bytes if sizes are known, otherwise in steps.

    :return: whole seconds; 0 if everything is done; None if the rate is unknown, for example if no step has finished.
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
