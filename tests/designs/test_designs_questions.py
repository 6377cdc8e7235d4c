"""Checks of the answers to questions that the design documents leave open."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.testing.designs.questions.answers import ANSWERS
from kreplica.testing.designs.questions.placements import PLACEMENTS, placement_results
from kreplica.testing.designs.questions.routing_window import routing_results
from kreplica.testing.designs.questions.slow_zookeeper import slow_results
from kreplica.testing.designs.questions.stalled_replica import stall_results

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "design-questions.md").read_text()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
TABLES = dict(re.findall(r"<!-- answer: ([\w-]+) -->\n\n(.*?)\n\n<!-- end -->", PAGE, re.DOTALL))


def test_the_page_has_every_answer() -> None:
    """The page has one table per question."""
    assert sorted(TABLES) == sorted(ANSWERS)


@pytest.mark.parametrize("question", ANSWERS)
def test_the_command_prints_what_the_page_shows(question: str) -> None:
    """The rows equal those on the page; times may differ slightly, as changes to brokers change random latencies."""
    result = CliRunner().invoke(main, ["designs", "answer", question])
    assert result.exit_code == 0, result.output
    printed, shown = result.output.strip(), TABLES[question]
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    for now, before in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        assert float(now.replace(",", "")) == pytest.approx(float(before.replace(",", "")), rel=0.5, abs=3), printed


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("replication_factor", [2, 3])
def test_a_placement_is_valid(name: str, replication_factor: int) -> None:
    """Replicas are on different brokers, and every broker leads the same number of partitions, except with copysets."""
    assignment = PLACEMENTS[name](10, 200, replication_factor)
    assert all(len(set(replicas)) == replication_factor for replicas in assignment)
    leaders = [sum(replicas[0] == broker for replicas in assignment) for broker in range(10)]
    assert name == "copysets" or set(leaders) == {20}


def test_the_figure_of_the_first_design() -> None:
    """With 15 partitions on 5 brokers, a dead broker's partitions are taken over by different brokers."""
    for name in ("kreplica", "first design"):
        assignment = PLACEMENTS[name](5, 15, 3)
        for dead in range(5):
            successors = [replicas[1] for replicas in assignment if replicas[0] == dead]
            assert len(successors) == len(set(successors)) == 3, (name, dead)


def test_the_expected_loss_does_not_depend_on_the_placement() -> None:
    """With fewer replica sets, losses are rarer, but more partitions are lost at once."""
    expected: dict[tuple[int, int], set[float]] = defaultdict(set)
    for each in placement_results():
        expected[each.replication_factor, each.brokers].add(round(each.loss * each.lost_partitions, 9))
    assert [len(values) for values in expected.values()] == [1] * 6


def test_a_leader_leads_soon_after_its_znode_was_written() -> None:
    """No client reaches a new leader before it leads, and only an old leader that is still running rejects records."""
    for result in routing_results():
        assert 0 <= result.until_led_ms[0] <= result.until_led_ms[1] < 10
        assert result.early == 0
        assert bool(result.rejected) == (result.event == "reassignment")


def test_slow_requests_cost_the_controller_least() -> None:
    """With slow ZooKeeper requests, a failover waits for one with a controller, and for several in other designs."""
    by_design = {result.design: result for result in slow_results()}
    delays = {name: result.last_s[-1] - result.last_s[0] for name, result in by_design.items()}
    assert delays["controller"] == pytest.approx(0.1, abs=0.001)
    assert min(delays["race"], delays["leader"]) > 5 * delays["controller"]


def test_only_a_quorum_does_not_wait_for_a_stalled_replica() -> None:
    """A quorum commits without a stalled replica; an ISR waits until it resumes or its broker's session expires."""
    for result in stall_results():
        assert result.quorum_s < 0.01
        assert result.quorum_s <= result.bytes_limit_s <= result.in_sync_s < min(result.stall_s, 18) + 0.1
        assert result.in_sync_s > 0.9 * min(result.stall_s, 18)
        assert result.removed == (result.stall_s > 18)
