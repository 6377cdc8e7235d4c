"""Formats the results of the design questions as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kreplica.testing.designs.questions.placements import placement_results
from kreplica.testing.designs.questions.routing_window import routing_results
from kreplica.testing.designs.questions.slow_zookeeper import SLOW_S, slow_results
from kreplica.testing.designs.questions.stalled_replica import stall_results


def placement() -> str:
    """Return the table of ``placements``."""
    rows = [
        (
            f"{result.replication_factor}",
            f"{result.brokers}",
            result.placement,
            f"{result.sets:,}",
            f"{100 * result.loss:.1f}%",
            f"{result.lost_partitions:.1f}",
            f"{result.successors:.1f}",
            f"{100 * result.largest_share:.0f}%",
        )
        for result in placement_results()
    ]
    names = ("replicas", "brokers", "placement", "sets", "loss probability", "partitions lost", "successors")
    return _table((*names, "largest share"), rows)


def routing() -> str:
    """Return the table of ``routing_window``."""
    rows = [
        (
            result.event,
            f"{result.moved}",
            _ms(result.until_led_ms),
            f"{result.rejected}",
            _ms(result.until_last_rejection_ms) if result.rejected else "-",
            f"{result.early}",
        )
        for result in routing_results()
    ]
    names = ("event", "partitions", "until the leader leads", "rejected", "until the last rejection", "rejected early")
    return _table(names, rows)


def slow() -> str:
    """Return the table of ``slow_zookeeper``."""
    rows = [
        (result.design, f"{result.requests:,}", *(f"{1000 * last_s:,.0f} ms" for last_s in result.last_s))
        for result in slow_results()
    ]
    return _table(("design", "requests", *(f"slow requests take {1000 * s:g} ms more" for s in SLOW_S)), rows)


def stall() -> str:
    """Return the table of ``stalled_replica``."""
    rows = [
        (
            f"{result.stall_s:g} s",
            _s(result.in_sync_s),
            "yes" if result.removed else "no",
            _s(result.bytes_limit_s),
            _s(result.quorum_s),
        )
        for result in stall_results()
    ]
    return _table(("stall", "in-sync replicas", "follower removed", "with a limit in bytes", "quorum of two"), rows)


ANSWERS: dict[str, Callable[[], str]] = {
    "placement": placement,
    "routing": routing,
    "slow-zookeeper": slow,
    "stalled-replica": stall,
}
"""Tables by the name of their question."""


def _ms(times_ms: tuple[float, float]) -> str:
    return f"{times_ms[0]:.1f} ms, at most {times_ms[1]:.1f} ms"


def _s(time_s: float) -> str:
    return f"{1000 * time_s:.0f} ms" if time_s < 0.9 else f"{time_s:.1f} s"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
