"""The page about Spark has every option; tests/spark_jvm runs its programs."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from kreplica.spark.client_settings import client_settings
from kreplica.spark.sink import options as sink_options
from kreplica.spark.source import options

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "spark.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def names_in_table(title: str) -> set[str]:
    """Return the names in the first column of a section's table."""
    rows = re.findall(r"^\| (`[^|]*) \|", section(title), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


def test_every_option_is_on_the_page() -> None:
    """The tables have exactly the options of the source and the sink."""
    of_source = {*options._KNOWN, "kafka.bootstrap.servers", "kafka.isolation.level", "kafka.group.id"}
    assert names_in_table("Options of the source") == of_source
    of_sink = {name.lower() for name in names_in_table("Options of the sink")}
    assert of_sink == {*sink_options._KNOWN, "kafka.bootstrap.servers"}


def test_every_setting_is_on_the_page(caplog: pytest.LogCaptureFixture) -> None:
    """Each setting on the page exists, and settings that are rejected are on the page."""
    names = names_in_table("Settings of the client")
    assert len(names) >= 20
    values = {"acks": "1", "compression.type": "zstd", "enable.idempotence": "false", "security.protocol": "PLAINTEXT"}
    with caplog.at_level(logging.WARNING):
        client_settings({f"kafka.{name}": values.get(name, "1048576") for name in names}, {})
    assert not caplog.text
    for name in (*options.UNSUPPORTED, *sink_options.UNSUPPORTED):
        assert name.split(".")[-1].removesuffix("er") in PAGE
