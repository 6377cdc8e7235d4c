"""Processes that Spark reuses do not collect the imported modules after each task."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kreplica.spark.worker_processes import REUSE_VARIABLE

SCRIPT = """
import gc
from kreplica.spark.data_source import KreplicaDataSource
before = gc.get_freeze_count()
source = KreplicaDataSource({"kafka.bootstrap.servers": "localhost:9", "subscribe": "orders"})
source.schema()
print(before, gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 5_000)
cycle = []
cycle.append(cycle)
del cycle
source.schema()
print(gc.collect() > 0)
"""


@pytest.mark.parametrize(("setting", "is_exempt"), [("1", True), ("", False)])
def test_modules_are_exempt_in_reused_processes(setting: str, is_exempt: bool) -> None:
    """The first call exempts the imported modules; objects that are created later are collected."""
    environment = {**os.environ, REUSE_VARIABLE: setting}
    said = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [f"0 {is_exempt} {is_exempt}", "True"]
