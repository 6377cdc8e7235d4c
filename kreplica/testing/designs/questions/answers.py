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
            f"{each.replication_factor}",
            f"{each.brokers}",
            each.placement,
            f"{each.sets:,}",
            f"{100 * each.loss:.1f}%",
            f"{each.lost_partitions:.1f}",
            f"{each.successors:.1f}",
            f"{100 * each.largest_share:.0f}%",
        )
        for each in placement_results()
    ]
    names = ("replicas", "brokers", "placement", "sets", "loss probability", "partitions lost", "successors")
    return _table((*names, "largest share"), rows)


def routing() -> str:
    """Return the table of ``routing_window``."""
    rows = [
        (
            each.event,
            f"{each.moved}",
            _ms(each.until_led_ms),
            f"{each.rejected}",
            _ms(each.until_last_rejection_ms) if each.rejected else "-",
            f"{each.early}",
        )
        for each in routing_results()
    ]
    names = ("event", "partitions", "until the leader leads", "rejected", "until the last rejection", "rejected early")
    return _table(names, rows)


def slow() -> str:
    """Return the table of ``slow_zookeeper``."""
    rows = [
        (each.design, f"{each.requests:,}", *(f"{1000 * last_s:,.0f} ms" for last_s in each.last_s))
        for each in slow_results()
    ]
    return _table(("design", "requests", *(f"slow requests take {1000 * s:g} ms more" for s in SLOW_S)), rows)


def stall() -> str:
    """Return the table of ``stalled_replica``."""
    rows = [
        (
            f"{each.stall_s:g} s",
            _s(each.in_sync_s),
            "yes" if each.removed else "no",
            _s(each.bytes_limit_s),
            _s(each.quorum_s),
        )
        for each in stall_results()
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
