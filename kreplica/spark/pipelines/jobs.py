"""Python functions as Spark's tasks, whose results come as they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_MIN = 8

T = TypeVar("T")
R = TypeVar("R")


def in_jobs(spark: SparkSession, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """What a function gives for each item, in the order in which they are done: each one a job of one task.

    Spark always has some to begin with, also while a cluster is growing; those that wait never begin where the caller
    stops.

    :param function: travels to executors, as items and results do.
    """
    context = spark.sparkContext

    def job(item: T) -> R:
        (found,) = context.parallelize([item], 1).map(function).collect()
        result: R = found
        return result

    with ThreadPoolExecutor(max(JOBS_MIN, 2 * context.defaultParallelism)) as pool:
        running: set[Future[R]] = {pool.submit(job, item) for item in items}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
