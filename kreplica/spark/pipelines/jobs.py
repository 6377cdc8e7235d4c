"""Runs Python functions as Spark jobs and yields each result as soon as its job finishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_MIN = 8

T = TypeVar("T")
R = TypeVar("R")


def map_in_jobs(spark: SparkSession, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Apply a function to each item, one single-task Spark job per item, and yield the results as they finish.

    The number of concurrent jobs scales with the size of the cluster. If the caller stops iterating, jobs that have not
    started are cancelled.

    :param function: sent to executors, as are items; results are sent back.
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
