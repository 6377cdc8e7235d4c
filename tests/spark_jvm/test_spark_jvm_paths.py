"""Paths that cause problems in Spark itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from kreplica.spark.session import spark_session

options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
print(spark_session("paths").read.format("kreplica").options(**options).load().columns)
"""


@pytest.mark.soak
def test_space_in_the_path_of_python(tmp_path: Path) -> None:
    """The data source is found by a Python whose path contains a space."""
    python = tmp_path / "a folder" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.startswith("['key', 'value', 'topic', 'partition', 'offset'"), done.stderr[-3000:]
