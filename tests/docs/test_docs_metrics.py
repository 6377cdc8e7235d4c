"""The page about metrics and the Grafana dashboard match the metrics of a running cluster."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from promql import QueryError, Scrapes, Vector, evaluate

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "etc" / "grafana" / "kreplica.json").read_text())
specification = importlib.util.spec_from_file_location("metrics_page", ROOT / "docs" / "metrics.py")
assert specification is not None
assert specification.loader is not None
metrics = importlib.util.module_from_spec(specification)
specification.loader.exec_module(metrics)

SECONDS = 30.0
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def scene() -> Iterator[Any]:
    scene = metrics.Scene()
    yield scene
    scene.stop()


def scraped(scene: Any) -> dict[str, Vector]:
    """Scrape three running brokers, and return the samples by full name, with the label that Prometheus adds."""
    found: dict[str, Vector] = {}
    for broker in (1, 2, 3):
        for family in text_string_to_metric_families(scene.scrape(broker)):
            for sample in family.samples:
                labels = (*sorted(sample.labels.items()), ("instance", f"broker-{broker}"))
                samples = found.setdefault(sample.name, {})
                assert labels not in samples, f"{sample.name} {labels} occurs twice"
                samples[labels] = sample.value
    return found


@pytest.fixture(scope="module")
def scrapes(scene) -> Scrapes:
    first = scraped(scene)
    scene.work()
    scene.cluster.run(SECONDS)
    return Scrapes(first, scraped(scene), SECONDS)


def test_the_page_matches_the_metrics_of_a_cluster(scene):
    """The page equals the output of its generator; ``python docs/metrics.py`` updates it."""
    assert metrics.PAGE.read_text() == metrics.page(scene)


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{n}" for n, (title, _) in enumerate(QUERIES)])
def test_a_panel_shows_something(scrapes, title, query):
    """Each query of the dashboard returns at least one sample, and all samples are finite numbers."""
    found = evaluate(query, scrapes)
    assert isinstance(found, dict)
    assert found, f"{title} is empty"
    assert all(value == value and abs(value) != float("inf") for value in found.values())


def test_panels_show_correct_values(scrapes):
    """Some queries return known values, which tests the evaluator."""
    by_title = dict(QUERIES)
    assert evaluate(by_title["Controllers"], scrapes) == {(): 1.0}
    assert evaluate(by_title["Brokers"], scrapes) == {(): 3.0}
    under_replicated = evaluate(by_title["Under-replicated, by topic"], scrapes)
    assert under_replicated[(("topic", "orders"),)] == 1.0
    rates = evaluate(by_title["Requests"], scrapes)
    assert rates[(("request", "Produce"),)] == pytest.approx(15 / SECONDS)
    assert evaluate(by_title["Lag, by group"], scrapes) == {(("consumergroup", "billing"),): 13.0}
    moves = evaluate(by_title["Plans: moves"], scrapes)
    assert moves[(("plan", "plan-0000000001"), ("state", "waiting"))] == 1.0


def test_panels_do_not_overlap():
    """Panels do not overlap, IDs are unique, and the data source of each panel can be chosen."""
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        left, top, width, height = (place[name] for name in "xywh")
        cells = {(x, y) for x in range(left, left + width) for y in range(top, top + height)}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(?!__)(\w+)", json.dumps(PANELS))) <= variables


def test_legends_name_existing_labels(scrapes):
    """Each legend uses only labels that the result has, because it would be empty otherwise."""
    for panel in PANELS:
        for target in panel["targets"]:
            names = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            for labels in evaluate(target["expr"], scrapes):
                assert set(names) <= {name for name, _ in labels}, panel["title"]


@pytest.mark.parametrize(
    "query",
    [
        "sum(kafka_broker)",
        "rate(kafka_brokers[$__rate_interval])",
        'kafka_brokers{brokr="1"}',
        "sum by (topic) (kafka_brokers)",
        "sum(kafka_brokers",
        "average(kafka_brokers)",
        "sum(kafka_brokers) !",
    ],
)
def test_the_evaluator_of_queries_is_strict(scrapes, query):
    """The evaluator rejects invalid queries, without which the tests above would prove little."""
    with pytest.raises(QueryError):
        evaluate(query, scrapes)
