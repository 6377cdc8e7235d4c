"""Experiments of the ZooKeeper benchmark, and the results that the controller redesign document published for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EXPERIMENT_TIME_S_MAX = 180.0
ROOT = "/benchmark"
CHECKED = "/benchmark-epoch"
BATCH_SIZES = (10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000)
WINDOW = 1_000
"""Number of single requests in flight."""
WINDOW_ZNODES = 20_000
"""Number of znodes in flight in multis."""

AT_ONCE = ", all at once"
SET_SYNC, GET_SYNC, SET_ASYNC, GET_ASYNC = "set-data-sync", "get-data-sync", "set-data-async", "get-data-async"
MULTI, CHECKED_MULTI = "multi-set-data-sync ({:,})", "multi-check-and-set-data-async ({:,})"


@dataclass(frozen=True)
class Experiment:
    """One experiment of the document.

    :param kind: ``get`` or ``set`` for single znodes, or ``multi`` for several sets per multi.
    :param window: number of requests in flight; 1 to send them one after another.
    :param size: number of sets in one multi.
    :param check: the znode whose version each multi checks first.
    """

    title: str
    kind: str
    window: int
    size: int = 1
    check: str | None = None


def experiments(znode_count: int, *, at_once: bool = False) -> Iterator[Experiment]:
    """Yield all experiments with this number of znodes.

    :param at_once: True to also send all asynchronous requests without waiting for any response, as the document's
        client did.
    """
    sizes = [size for size in BATCH_SIZES if size <= znode_count]
    yield Experiment(SET_SYNC, "set", window=1)
    yield Experiment(GET_SYNC, "get", window=1)
    yield Experiment(SET_ASYNC, "set", window=WINDOW)
    yield Experiment(GET_ASYNC, "get", window=WINDOW)
    for size in sizes:
        yield Experiment(MULTI.format(size), "multi", window=1, size=size)
    for size in (1, *sizes):
        window = max(2, min(WINDOW, WINDOW_ZNODES // size))
        yield Experiment(CHECKED_MULTI.format(size), "multi", window, size, CHECKED)
    if at_once:
        everything = 2 * znode_count  # clients send half a window at a time
        yield Experiment(SET_ASYNC + AT_ONCE, "set", everything)
        yield Experiment(GET_ASYNC + AT_ONCE, "get", everything)
        yield Experiment(CHECKED_MULTI.format(1) + AT_ONCE, "multi", everything, 1, CHECKED)
        yield Experiment(CHECKED_MULTI.format(10) + AT_ONCE, "multi", everything, 10, CHECKED)


def _by_title(singles_ms: tuple[float | str, ...], multi_ms: str, checked_ms: str) -> dict[str, float | str]:
    """Return the times by title; ``multi_ms`` has a value per batch size, ``checked_ms`` also has one for size 1."""
    figures: dict[str, float | str] = dict(zip((SET_SYNC, GET_SYNC, SET_ASYNC, GET_ASYNC), singles_ms, strict=True))
    figures |= {MULTI.format(size): _figure(text) for size, text in zip(BATCH_SIZES, multi_ms.split(), strict=True)}
    sizes = (1, *BATCH_SIZES)
    figures |= {CHECKED_MULTI.format(size): _figure(text) for size, text in zip(sizes, checked_ms.split(), strict=True)}
    return figures


def _figure(text: str) -> float | str:
    return float(text) if text[0].isdigit() else text


DOCUMENT_MS = {
    500_000: _by_title(
        (253376.6, 64151.8, 18760.6, 10304.6),
        "33340.6 17126.4 11308.2 7564.4 6908.6 5432.0 5170.8 ConnectionLoss",
        "OutOfMemory 4270.8 4122.2 3824.2 3795.2 3773.0 3135.0 3308.6 ConnectionLoss",
    ),
    1_000_000: _by_title(
        (514551.8, 129739.6, "OutOfMemory", "OutOfMemory"),
        "66673.4 34561.8 22098.0 14953.2 13353.2 10552.8 10081.4 ConnectionLoss",
        "- OutOfMemory - - - - - - -",
    ),
}
"""Average time in ms of the Java client with five servers, or the error of all five runs, by znode count and title;
``-`` if the document has no result."""


def document_result(title: str, znode_count: int) -> int | str | None:
    """Return the document's znodes per second, the name of its error, or None if it has no result.

    :param znode_count: results for 500,000 znodes are used for every number except 1,000,000.
    """
    count = znode_count if znode_count in DOCUMENT_MS else min(DOCUMENT_MS)
    figure = DOCUMENT_MS[count].get(title.removesuffix(AT_ONCE), "-")
    if isinstance(figure, str):
        return None if figure == "-" else figure
    return round(count / figure * 1000)
