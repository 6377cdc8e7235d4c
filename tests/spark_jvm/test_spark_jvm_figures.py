"""Spark reads the published figures of the coordination designs."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs" / "explanation"


def test_query_of_the_page(spark: SparkSession) -> None:
    """The page's program reads the file, and its result is one row per design."""
    page = (DOCS / "design-questions.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, object] = {"spark": spark}
    exec(program.replace('"design-costs.json"', repr(str(DOCS / "design-costs.json"))), found)
    rows = {row.design: row.last_s for row in found["deaths"].collect()}  # type: ignore[attr-defined]
    assert set(rows) == {"race", "leader", "controller"}
    assert rows["controller"] < rows["race"] < rows["leader"]
