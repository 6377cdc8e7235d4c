"""What runs in one process after the other, and what first, where pytest-xdist shares tests out (``make test``)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

OF_PROCESSES = (("interop", "upstream", "dashboard"), ("system", "service"), ("spark_jvm",))
"""Rooms whose tests start processes, and wait more than they work: of each of these, one test at a time.

Those of the last one share a Spark session.
"""

LONG = (
    "tests/upstream/test_upstream_kafka_python.py",
    *(f"tests/{room}/" for rooms in OF_PROCESSES for room in rooms),
    "tests/testing/test_storms.py",
    "tests/zookeeper/test_embedded_kazoo_suite.py",
    "tests/docs/test_docs_testing.py",
    "tests/cli/test_cli_data.py",
    "tests/cli/test_cli_cluster.py",
    "tests/cli/test_cli_simulate.py",
    "tests/fixtures/test_fixtures_plugin.py",
    "tests/docs/test_docs_commands.py",
    "tests/testing/test_cluster_failures.py",
    "tests/testing/test_cluster_guards.py",
    "tests/groups/test_groups_cluster_classic.py",
    "tests/zookeeper/test_zookeeper_ensemble.py",
    "tests/admin/test_admin_schemathesis.py",
)
"""What takes longest comes first: the last to come are shared evenly."""


class RoomScheduling(LoadFileScheduling):
    """What is of one file stays together, and so do rooms that start processes."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        room = file.split("/")[1]
        return next((" ".join(rooms) for rooms in OF_PROCESSES if room in rooms), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RoomScheduling | None:
    """For ``--dist loadfile``."""
    config.option.loadscopereorder = False
    return RoomScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first; else in the order of the files."""
    items.sort(key=lambda item: next((at for at, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: not to be looked through again in each of hundreds of collections."""
    gc.collect()
    gc.freeze()
