"""docs/reference/limits.md names existing settings, metrics and tests, and every setting that limits memory."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from kreplica.service.metrics.memory_metrics import memory_families
from kreplica.service.process.options import CoordinatorOptions
from kreplica.settings.definitions import BROKER_SETTINGS
from kreplica.settings.definitions.limits import LIMITS
from kreplica.testing.cluster.cluster import SimulatedCluster

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text()
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()
QUOTED = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of the table."""

    what: str
    owner: str
    bound: str
    setting: str
    beyond: str
    metric: str
    test: str


def rows() -> list[Row]:
    table = PAGE[PAGE.index("| Resource | Charged to |") :].partition("\n\n")[0]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table.splitlines()[2:]]


ROWS = rows()


@cache
def names_of_tests(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=[row.what for row in ROWS])
def test_a_row_names_what_exists(row: Row) -> None:
    """The row's setting, metric and test exist, and a limit that is a plain number equals the setting's default."""
    options = {f"--{each[0]}" for each in CoordinatorOptions.optParameters}
    for name in QUOTED.findall(row.setting):
        assert name in BROKER_SETTINGS or name in options, name
    path, _, test = QUOTED.findall(row.test)[0].partition("::")
    assert test in names_of_tests(path), row.test
    for metric in QUOTED.findall(row.metric):
        name = metric.partition("{")[0]
        assert f"| `{name}` |" in METRICS or f'"{name.removeprefix("zk_")}"' in words(), metric
    number = re.match(r"(\d+)( MiB| KiB/s| characters| s)?(,|$)", row.bound)
    setting = QUOTED.findall(row.setting)
    if number and setting and setting[0] in BROKER_SETTINGS:
        unit = {" MiB": 2**20, " KiB/s": 1024, " s": 1000}.get(number[2] or "", 1)
        assert int(number[1]) * unit == BROKER_SETTINGS[setting[0]].default


def words() -> str:
    return (ROOT / "kreplica" / "zookeeper" / "embedded" / "four_letter_words.py").read_text()


def test_every_setting_that_limits_memory_has_a_row() -> None:
    """A new setting that limits memory needs a row, and therefore a test."""
    named = {name for row in ROWS for name in QUOTED.findall(row.setting)}
    assert {setting.name for setting in LIMITS} - named == set()


def test_every_kind_of_memory_is_a_metric() -> None:
    """The table has the same kinds of memory as the brokers' metric."""
    kinds = set(re.findall(r'kind="(\w+)"', PAGE))
    cluster = SimulatedCluster(1)
    cluster.start()
    shown = cluster.brokers[1].program
    found = {sample.labels[0] for family in memory_families(shown) for sample in family.samples}
    assert kinds - {"http"} == found - {"http"}
    cluster.stop()
