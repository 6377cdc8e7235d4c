"""``kreplica pipeline profile``: its output, and the plan that it requests, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kreplica.cli.pipelines import pipeline_profile
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.profile import profile as profiling
from kreplica.spark.pipelines.profile.measures import Measures
from kreplica.spark.pipelines.profile.report import ProfileReport, profile_report
from kreplica.spark.source.ranges import OffsetRange
from kreplica.wire.batches import BatchHeader

PLAN = {
    "plan": {"id": "plan-0000000007"}, "moves": [], "moves_count": 1, "bytes": 1 << 30, "eta_seconds": None,
    "warnings": ["The weight of a broker ranges from 1 to 9 now, and from 4 to 5 after the plan."],
    "brokers": [], "znodes": [], "dry_run": True,
}  # fmt: skip
WEIGHTS = [
    {"topic": "orders", "partition": 0, "weight": 3000},
    {"topic": "orders", "partition": 1, "weight": 1000},
]


def measures_of(batches: int) -> Measures:
    """Return the measures of batches of 1,000 bytes and 10 records, one minute apart; some keys are ``a``."""
    measures = Measures()
    for number in range(batches):
        header = BatchHeader(10 * number, 988, 0, 2, 0, 0, 9, 60_000 * number, 60_000 * number, 5, 0, 0, 10)
        measures.add_headers([header], [None])
    measures.opened, measures.keyed = 10 * batches, batches
    measures.keys.add(pa.array([b"a"] * batches, pa.binary()), pa.array([3] * batches, pa.int64()))
    measures.value_sizes.add(np.full(10 * batches, 90, dtype=np.int64))
    return measures


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace Spark's pipeline by a scripted report, and return the arguments that it received."""
    called: dict[str, Any] = {}
    rows = {0: 3, 1: 1, 2: 0}
    parts = [(TopicPartition("orders", number), batches) for number, batches in rows.items()]
    report = profile_report(
        {each: (OffsetRange(each, 0, 10 * n), measures_of(n)) for each, n in parts}, sample=0.5, top=1
    )

    @contextmanager
    def no_spark(name: str, choice: object) -> Iterator[None]:
        yield

    def fake_profile(spark: object, options: dict[str, str], **others: Any) -> ProfileReport:
        called.update(options, **others)
        return report

    monkeypatch.setattr(pipeline_profile, "open_spark", no_spark)
    monkeypatch.setattr(profiling, "profile", fake_profile)
    return called


def test_tables(kreplica, arguments):
    """Topics are first listed in a table, then shown one by one."""
    done = kreplica("pipeline", "profile", "--bootstrap", "b:1", "--sample", "0.5", "--top", "1")
    assert done.exit_code == 0, done.output
    assert arguments["kafka.bootstrap.servers"] == "b:1"
    assert (arguments["subscribePattern"], arguments["sample"], arguments["top"]) == (".*", 0.5, 1)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[1] == "orders 3 40 3.9 KiB 3.9 KiB 0.2 1 5.0 % 2.25"
    assert "Keys and values were measured in a sample of 50.0 % of the batches." in lines
    assert "records 40 in 4 batches" in lines
    assert "values 90 90 90 90 90.0" in lines
    assert "a 4 10.0 % 12 B" in lines
    assert "5 40 3.9 KiB 100.0 % no" in lines
    assert "0 0 30 30 2.9 KiB 17 B/s 1" in lines


def test_files_instead_of_brokers(kreplica, arguments):
    """With log directories, the selected topics are read from the files of one broker."""
    assert kreplica("pipeline", "profile", "orders", "payments", "--log-dirs", "/a,/b").exit_code == 0
    assert arguments["kreplica.source"] == "segments"
    assert (arguments["kreplica.log.dirs"], arguments["subscribe"]) == ("/a,/b", "orders,payments")
    assert "kafka.bootstrap.servers" not in arguments


def test_plan_from_the_profile(admin, kreplica, arguments):
    """The plan is shown, and created only on request."""
    admin.answers["POST /v1/plans"] = [PLAN, PLAN, {**PLAN, "dry_run": False}]
    done = kreplica("pipeline", "profile", "--bootstrap", "b:1", "--plan", "bytes")
    assert done.stdout.endswith("Nothing was changed: use --submit to create this plan.\n")
    assert "ranges from 1 to 9 now" in done.stdout
    assert admin.last.query == {"dry_run": "true"}
    assert admin.last.body["weights"] == WEIGHTS
    assert (admin.last.body["kind"], admin.last.body["topics"]) == ("rebalance", ["orders"])
    done = kreplica("pipeline", "profile", "--bootstrap", "b:1", "--plan", "rate", "--submit", "--throttle", "50MB")
    created = "Plan plan-0000000007 was created.  Follow it with kreplica plan watch plan-0000000007.\n"
    assert done.stdout.endswith(created)
    assert admin.last.query == {}
    assert admin.last.body["throttle_bytes_per_second"] == 50_000_000
    assert [row["weight"] for row in admin.last.body["weights"]] == [17, 6]


def test_json(admin, kreplica, arguments):
    """The JSON has the admin API's response; if that is an error, the report is printed without it."""
    admin.answers["POST /v1/plans"] = PLAN
    report = json.loads(kreplica("pipeline", "profile", "--bootstrap", "b:1", "--json", "--plan", "bytes").stdout)
    assert report["plan"] == PLAN
    assert report["topics"][0]["partitions"][0]["size_bytes"] == 3000
    done = kreplica(
        "pipeline", "profile", "--bootstrap", "b:1", "--json", "--plan", "bytes", "--admin", "http://127.0.0.1:1"
    )
    assert done.exit_code == 1
    assert json.loads(done.stdout)["plan"] is None
    assert kreplica("pipeline", "profile", "--bootstrap", "b:1", "--submit").exit_code == 2
