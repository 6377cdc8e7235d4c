"""Runs the programs on the page about Spark in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jvm_tables import count_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
PLACEHOLDER = "127.0.0.1:9092"
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_programs_of_the_page(
    spark: SparkSession, brokers: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create_topic("orders", 3)
    brokers.create_topic("orders-loud", 3)
    brokers.create_topic("orders-copies", 3)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    page = PAGE.read_text().replace(PLACEHOLDER, brokers.bootstrap_servers).replace('"checkpoint', f'"{tmp_path}')
    tables = []
    for language, text in BLOCK.findall(page):
        if language == "python":
            exec(compile(text, "spark.md", "exec", dont_inherit=True), names)
        else:
            tables.append(spark.sql(text).collect())
    assert sorted(count_values(brokers, "orders-loud").items()) == [("A TEA", 2), ("TWO COFFEES", 2)]
    copies = count_values(brokers, "orders-copies")  # the counts include transaction markers
    assert (copies["a tea"], copies["two coffees"]) == (3, 3)
    assert sum(row.orders for row in tables[-1]) == 4
