"""Which tests run in one process after the other, where pytest-xdist shares them out (``make test``); garbage."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

OF_PROCESSES = ("dashboard", "interop", "service", "system", "upstream")
"""Rooms whose tests start brokers as processes: one test at a time, or each would find the others' load in its way."""


class RoomScheduling(LoadFileScheduling):
    """What is of one file stays together, and so does all that starts processes."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "processes" if file.split("/")[1] in OF_PROCESSES else file


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: not to be looked through again in each of hundreds of collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RoomScheduling | None:
    """For ``--dist loadfile``."""
    return RoomScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
