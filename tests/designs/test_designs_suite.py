"""The suite's choice of cases, its text and pictures, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.testing.designs.pictures import draw
from kreplica.testing.designs.suite import choose_cases, run_cases


def test_large_sizes_run_a_subset() -> None:
    """Small sizes run with every combination of options, and the largest size with one per design."""
    cases = choose_cases((10, 10_000, 100_000), (3, 10), (0.5, 1, 4), 2, full=False)
    by_size = {size: [case for case in cases if case.shape.partitions == size] for size in (10, 10_000, 100_000)}
    assert [len(by_size[size]) for size in (10, 10_000, 100_000)] == [3 * 7, 3 * 5, 3]
    assert len(choose_cases((100_000,), (3, 10), (0.5, 1, 4), 2, full=True)) == 3 * 7


def test_cases_run_in_parallel_and_are_returned_in_order() -> None:
    """Cases run in parallel processes, and their results are in the order of the cases."""
    cases = choose_cases((5, 20), (3,), (1,), 2, full=False)
    finished: list[object] = []
    results = run_cases(cases, 2, finished.append)
    assert [result.case for result in results] == cases
    assert len(finished) == len(cases)


def test_the_quick_run(tmp_path: Path) -> None:
    """``--quick`` prints the table and the figures from the design texts, and writes files, in less than a minute."""
    started_s = monotonic()
    arguments = ["designs", "--quick", "--json", str(tmp_path / "all.json"), "--pictures", str(tmp_path / "pictures")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert monotonic() - started_s < 60
    assert "1,500 on partitions" in result.output
    assert "300 on partitions" in result.output
    document = json.loads((tmp_path / "all.json").read_text())
    assert {row["design"] for row in document["events"]} == {"race", "leader", "controller"}
    assert len({row["event"] for row in document["events"]}) == 10
    one_write = next(row for row in document["design_texts"] if row["design"].endswith("one write at a time"))
    assert float(one_write["measured"].removesuffix(" s")) == pytest.approx(4.0, rel=0.1)
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert "watches.svg" in [path.name for path in pictures]
    for path in pictures:
        ElementTree.parse(path)


def test_a_picture_has_logarithmic_axes() -> None:
    """On a picture's axes, equal factors have equal distances."""
    picture = ElementTree.fromstring(draw("t", "x", {"race": [(10, 1), (100, 10), (1000, 100)]}))
    x = [float(dot.get("cx", "")) for dot in picture.iter("{http://www.w3.org/2000/svg}circle")]
    y = [float(dot.get("cy", "")) for dot in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert y[1] - y[0] == pytest.approx(y[2] - y[1], abs=0.2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--partitions", "ten"], "expected numbers"),
        (["--brokers", "1"], "at least 2 brokers"),
        (["--rtt", "0"], "more than 0"),
        (["--rtt", "fast"], "expected milliseconds"),
    ],
)
def test_wrong_arguments(words: list[str], message: str) -> None:
    """Invalid arguments are refused with a sentence."""
    result = CliRunner().invoke(main, ["designs", *words])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
