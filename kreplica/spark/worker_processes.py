"""The Python processes in which Spark runs the data source."""

from __future__ import annotations

import gc
import os
from functools import cache

REUSE_VARIABLE = "SPARK_REUSE_WORKER"
"""Environment variable that Spark sets in processes that run several tasks or planning steps."""


@cache
def exempt_from_collection() -> None:
    """Exempt the objects of a reused process from garbage collection; only the first call has an effect.

    Spark collects garbage after every task and every planning step, before the process can start the next one. With the
    imported modules, which are never garbage, this takes 50 ms each time.
    """
    if os.environ.get(REUSE_VARIABLE):
        gc.freeze()
