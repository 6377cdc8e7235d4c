"""``kreplica pipeline archive`` and ``compare`` without Spark: options, output and exit status."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kreplica.cli.pipelines import pipeline_archive, pipeline_compare
from kreplica.spark.pipelines.archive.archive import ArchiveOptions, ArchiveReport, TopicTotal
from kreplica.spark.pipelines.compare.compare import CompareOptions, CompareReport
from kreplica.spark.pipelines.compare.findings import Difference, Kind, PartitionResult

ARCHIVED = ArchiveReport(
    path="/a",
    topics=(TopicTotal("orders", 2, 1000, 3),),
    records=1000,
    size_bytes=2048,
    batches=1,
    files=4,
    seconds=2.0,
    lag=3,
    first_batch=7,
    is_resumed=True,
)


def compare_report(*counted: tuple[Kind, int], lost: tuple[str, ...] = ()) -> CompareReport:
    counts = dict.fromkeys(Kind, 0) | dict(counted)
    return CompareReport(
        path="/a",
        partitions=(PartitionResult("orders", "again", 0, 90, 10, counts),),
        differences=tuple(Difference(kind, "orders", 0, 5, None) for kind, _ in counted),
        difference_count=sum(count for _, count in counted),
        records=90,
        deleted=10,
        lag=0,
        lost_files=lost,
        seconds=1.0,
    )


class CommandRunner:
    """Runs a module's command with a fake pipeline that records its arguments and returns a given report."""

    def __init__(self, module: Any, name: str, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.command = module.command
        self.calls: list[tuple[str, Any]] = []

        def pipeline(_: Any, path: str, options: Any, __: Any) -> Any:
            self.calls.append((path, options))
            return report

        monkeypatch.setattr(module, "open_spark", lambda *_: nullcontext())
        monkeypatch.setattr(module, name, pipeline)

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(self.command, arguments)


def test_archive_options_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are parsed; the output is a table or, with ``--json``, an object."""
    run = CommandRunner(pipeline_archive, "archive", ARCHIVED, monkeypatch)
    names = ("--topics", "orders,x", "--values", "json", "--codec", "snappy", "--every", "5s", "--bootstrap", "b:1")
    flags = ("--read-uncommitted", "--follow", "--adopt")
    result = run(*names, *flags, "--option", "kafka.client.id=me", "/a")
    assert result.exit_code == 0, result.output
    assert run.calls[0] == (
        "/a",
        ArchiveOptions(
            bootstrap="b:1",
            topics=("orders", "x"),
            read_committed=False,
            values="json",
            codec="snappy",
            follow_every="5s",
            adopt=True,
            kafka={"kafka.client.id": "me"},
        ),
    )
    assert "orders           2     1000    3" in result.output
    summary = "1000 records in 1 batch, starting with batch 7; 4 files, 2.0 KiB, 2 s, 500 records/s, lag 3"
    assert summary in result.output
    result = run("--pattern", "o.*", "--json", "/a")
    assert json.loads(result.output)["topics"] == [{"topic": "orders", "partitions": 2, "records": 1000, "lag": 3}]
    assert (run.calls[1][1].pattern, run.calls[1][1].follow_every) == ("o.*", None)


@pytest.mark.parametrize(
    "words",
    [
        ("/a",),
        ("--topics", "a", "--pattern", "b", "/a"),
        ("--topics", " , ", "/a"),
        ("--topics", "a"),
        ("--topics", "a", "--values", "xml", "/a"),
        ("--topics", "a", "--batch-records", "0", "/a"),
        ("--topics", "a", "--option", "x", "/a"),
        ("--topics", "a", "--bootstrap", "b", "/a"),
    ],
)
def test_archive_with_invalid_options(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command exits with status 2, and no pipeline is started."""
    run = CommandRunner(pipeline_archive, "archive", ARCHIVED, monkeypatch)
    assert run(*words).exit_code == 2
    assert not run.calls


def test_exit_status_of_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is 0 if all is equal, and 1 after a difference or a lost file, which the output shows."""
    run = CommandRunner(pipeline_compare, "compare", compare_report(), monkeypatch)
    result = run("--topics", "orders", "--as", "orders=again", "--show", "5", "--bootstrap", "b:1", "/a")
    assert result.exit_code == 0, result.output
    assert run.calls == [
        ("/a", CompareOptions(bootstrap="b:1", topics=("orders",), others={"orders": "again"}, shown_max=5))
    ]
    assert "90 records compared, 0 differences; 10 deleted from topics" in result.output
    run = CommandRunner(
        pipeline_compare, "compare", compare_report((Kind.MISSING, 2), (Kind.OUT_OF_ORDER, 1)), monkeypatch
    )
    result = run("/a")
    assert result.exit_code == 1
    assert "3 differences" in result.output
    assert "missing       orders          0                  5  -" in result.output
    result = run("/a", "--json")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert found["differences"][1]["kind"] == "out of order"
    assert found["partitions"][0]["counts"]["missing"] == 2
    run = CommandRunner(pipeline_compare, "compare", compare_report(lost=("topic=orders/x.parquet",)), monkeypatch)
    result = run("/a")
    assert result.exit_code == 1
    assert "/a/topic=orders/x.parquet is missing" in result.output
    assert run("--as", "orders", "/a").exit_code == 2
