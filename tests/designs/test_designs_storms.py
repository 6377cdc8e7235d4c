"""Storms on the first two designs: published violations, the rules that prevent them, and the command."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.testing.designs.storms.checks import LOST, TWO_LEADERS
from kreplica.testing.designs.storms.published import PUBLISHED, SMALLEST_SEEDS, Published
from kreplica.testing.designs.storms.rules import ALL_REPAIRED, RULE_NAMES, STORM_DESIGNS, Rules
from kreplica.testing.designs.storms.storm import draw_storm, minimize, replay

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "design-races.md"

every_published = pytest.mark.parametrize("published", PUBLISHED, ids=lambda each: f"{each.design}-{each.seed}")
every_design = pytest.mark.parametrize("design", STORM_DESIGNS.values(), ids=lambda each: each.name)


@every_published
def test_a_published_storm_breaks_its_promise(published: Published) -> None:
    """The minimized storm has the published kind of violation and number of steps, and no step is superfluous."""
    storm = minimize(draw_storm(STORM_DESIGNS[published.design], published.seed, Rules()), Rules())
    result = replay(storm, Rules())
    assert result.kind == published.kind
    assert len(storm.steps) == len(result.lines) == published.steps


@every_published
@pytest.mark.parametrize("rule", RULE_NAMES)
def test_only_the_published_rules_repair_it(published: Published, rule: str) -> None:
    """With a published rule, the same steps violate no guarantee; with any other rule, they still do."""
    storm = minimize(draw_storm(STORM_DESIGNS[published.design], published.seed, Rules()), Rules())
    kind = replay(storm, Rules().repaired(rule)).kind
    assert kind == (None if rule in published.repairs else published.kind)


@pytest.mark.parametrize(("key", "seed"), SMALLEST_SEEDS.items(), ids=str)
def test_smallest_seeds(key: tuple[str, str], seed: int) -> None:
    """The published seed is the smallest that violates the guarantee."""
    name, kind = key
    kinds = [replay(draw_storm(STORM_DESIGNS[name], each, Rules()), Rules()).kind for each in range(1, seed + 1)]
    assert kinds.index(kind) == seed - 1


@every_design
@pytest.mark.parametrize("rules", [Rules().repaired("truncate_by_epoch", "conditional_writes"), ALL_REPAIRED], ids=str)
def test_two_rules_repair_all_storms(design, rules: Rules) -> None:  # type: ignore[no-untyped-def]
    """With truncation by epoch and conditional writes, no storm violates a guarantee."""
    broken = [seed for seed in range(1, 121) if replay(draw_storm(design, seed, rules), rules).kind is not None]
    assert broken == []


@every_design
def test_storms_are_reproducible(design) -> None:  # type: ignore[no-untyped-def]
    """Two storms with the same seed have the same steps and the same transcript."""
    first, second = (draw_storm(design, 5, Rules()) for _ in range(2))
    assert first == second
    assert replay(first, Rules()) == replay(second, Rules())


def test_the_command_prints_what_the_page_shows() -> None:
    """Each transcript on the page is the output of its command."""
    page = PAGE.read_text(encoding="utf-8")
    for each in PUBLISHED:
        result = CliRunner().invoke(main, ["designs", "replay", each.design, str(each.seed)])
        assert result.exit_code == 1
        assert f"$ kreplica designs replay {each.design} {each.seed}\n{result.output}" in page, (each, result.output)


def test_the_command_with_a_repaired_rule() -> None:
    """With a repaired rule, the command runs the same steps without a violation, and succeeds."""
    result = CliRunner().invoke(main, ["designs", "replay", "race", "6", "--repair", "truncate-by-epoch"])
    assert result.exit_code == 0, result.output
    assert result.output.endswith("No guarantee is violated.\n")
    assert "high watermark 0: 1 record removed" not in result.output


def test_the_command_without_a_violation_and_without_arguments() -> None:
    """For a storm without a violation, the command says so; without arguments, it lists the published storms."""
    assert "no guarantee is violated in 80 steps" in CliRunner().invoke(main, ["designs", "replay", "race", "1"]).output
    listed = CliRunner().invoke(main, ["designs", "replay"]).output
    assert "race 6: acknowledged record lost, 11 steps, repaired by truncate-by-epoch" in listed


def rows_of_results() -> list[tuple[Rules, list[int]]]:
    """Return the rules and the four counts of each row of the page's table of results."""
    rows = []
    for cells in re.findall(r"^\| (.*?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE):
        names = [name.replace("-", "_") for name in re.findall(r"`(.*?)`", cells[0])]
        rules = ALL_REPAIRED if cells[0] == "all three" else Rules().repaired(*names)
        rows.append((rules, [int(cell) for cell in cells[1:]]))
    return rows


@pytest.mark.soak
@pytest.mark.parametrize(("rules", "counts"), rows_of_results(), ids=str)
def test_the_counts_on_the_page(rules: Rules, counts: list[int]) -> None:
    """In 1,000 storms per design, guarantees are violated as often as the page says."""
    found = []
    for design in STORM_DESIGNS.values():
        kinds = Counter(replay(draw_storm(design, seed, rules), rules).kind for seed in range(1, 1001))
        found += [kinds[LOST], kinds[TWO_LEADERS]]
    assert found == counts


def test_the_page_has_every_combination_of_rules() -> None:
    """The table of results has each of the eight combinations once."""
    assert len({rules for rules, _ in rows_of_results()}) == 2 ** len(RULE_NAMES)
