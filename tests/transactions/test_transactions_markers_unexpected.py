"""What nobody foresaw while markers were written: it is logged, and they are written all the same."""

from __future__ import annotations

import pytest
from transactions_scene import P0, Scene


@pytest.fixture
def failures_logged() -> None:
    """Here it is right that something is logged."""


def test_an_error_that_nobody_foresaw_loses_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction without its markers would hold back readers of committed records for ever."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    request = scene.cluster.request

    def fails_once(*args, **kwargs):
        monkeypatch.setattr(scene.cluster, "request", request)
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(scene.cluster, "request", fails_once)
    scene.ask_to_end(producer, commits=True)
    scene.log.commit()
    scene.settle(5.0)
    assert scene.markers_in(P0) == [True]
    assert scene.state == "CompleteCommit"
    scene.stop()
