"""Output and verdicts of the benchmarks."""

from __future__ import annotations

import time

import pytest
from crc32c import crc32c

from benchmarks import __main__ as runner
from benchmarks import client
from benchmarks.broker import Stream, Target, produce_targets, with_verdict
from benchmarks.client_load import Case
from benchmarks.raw_client import record_batch
from benchmarks.tables import markdown


def test_rows_with_the_same_keys_share_a_table() -> None:
    """Numbers are right-aligned below their names and rounded to three digits."""
    rows = [{"case": "a|b", "MB/s": 1234.5}, {"case": "c", "MB/s": 0.12345}, {"other": 1, "met": None}]
    assert markdown(rows) == (
        "| case |  MB/s |\n"
        "|------|------:|\n"
        "| a\\|b | 1,234 |\n"
        "| c    | 0.123 |\n"
        "\n"
        "| other | met |\n"
        "|------:|----:|\n"
        "|     1 |     |"
    )


@pytest.mark.parametrize(
    ("mb_per_s", "cost", "verdict"),
    [
        (600, 900, "pass"),
        (599, 900, "missed: MB/s"),
        (600, 901, "missed: broker us/MB"),
        (1, 1000, "missed: MB/s, broker us/MB"),
    ],
)
def test_missed_targets_are_named(mb_per_s: float, cost: float, verdict: str) -> None:
    """A row shows the target and the figures that miss it."""
    targets = produce_targets(Stream(1000, 16_384, 1))
    row = with_verdict({"MB/s": mb_per_s, "broker us/MB": cost}, targets)
    assert row["target"] == ">= 600 MB/s, <= 900 us/MB"
    assert row[""] == verdict


def test_without_target_there_is_no_verdict() -> None:
    """A figure without a target is shown without a verdict."""
    assert with_verdict({"x": 1}, []) == {"x": 1, "target": "", "": ""}
    assert not Target("x", "ms", most=1).met(1.01)


def test_a_broken_benchmark_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is shown in place of its results, followed by the other results, and the exit status is 1."""
    outcomes = {"good": ([{"x": 1}], None), "bad": ([], "it ended with status 1")}
    monkeypatch.setattr(runner, "run_apart", lambda name, scale, rounds: outcomes[name])
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert runner.run_all(["bad", "good"], "quick", None) == 1
    out = capsys.readouterr().out
    assert out.index("it ended with status 1") < out.index("| x |")
    assert runner.run_all(["good"], "quick", None) == 0


def test_benchmarks_are_found() -> None:
    """Every module with a function ``run`` is a benchmark; helper modules are not."""
    names = runner.benchmark_names()
    assert {"broker", "start"} <= set(names)
    assert not {"tables", "driver", "__main__", "broker_process"} & set(names)


def test_the_raw_client_builds_valid_batches() -> None:
    """Length and checksum are correct for values of any size."""
    for size in (0, 1, 63, 64, 128, 10_000):
        batch = record_batch(b"v" * size, time.time_ns() // 1_000_000)
        assert int.from_bytes(batch[8:12], "big") == len(batch) - 12
        assert int.from_bytes(batch[17:21], "big") == crc32c(batch[21:])
        assert batch.endswith(b"v" * size + b"\0")


def test_client_libraries_are_compared_round_by_round() -> None:
    """The ratio is the median of the rounds' ratios, and only some libraries have a target."""
    case = Case(
        what="produce",
        bootstrap="",
        topic="",
        partitions=1,
        style="record",
        seconds=1,
        record_bytes=100,
        varied=False,
        batch_bytes=16384,
    )
    quick, slow = ({"records": count, "bytes": count, "seconds": 1.0, "cpu_s": 0.5} for count in (300, 100))
    reports = {name: [quick, quick, slow] if name == "kreplica" else [slow, slow, slow] for name in client.LIBRARIES}
    rows = {row["library"]: row for row in client.rows_of(case, reports)}
    assert rows["aiokafka"]["kreplica is as fast"] == "3.00 x"
    assert rows["aiokafka"][""] == rows["kafka-python"][""] == "pass"
    assert rows["kreplica"]["records/s"] == 300
    assert rows["confluent-kafka"]["target"] == rows["kreplica"]["target"] == ""
