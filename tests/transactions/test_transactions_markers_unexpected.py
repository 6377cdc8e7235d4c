"""Unexpected errors while markers are written are logged, and the markers are retried."""

from __future__ import annotations

import pytest
from transactions_scene import P0, Scene


@pytest.fixture
def fail_on_logged_failures() -> None:
    """Disable the check for logged failures."""


def test_unexpected_error_loses_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unexpected error the marker is retried; a missing one would block read_committed consumers."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    request = scene.cluster.request

    def fail_once(*args, **kwargs):
        monkeypatch.setattr(scene.cluster, "request", request)
        raise RuntimeError("unexpected")

    monkeypatch.setattr(scene.cluster, "request", fail_once)
    scene.send_end(producer, commits=True)
    scene.log.commit()
    scene.settle(5.0)
    assert scene.markers_in(P0) == [True]
    assert scene.state == "CompleteCommit"
    scene.stop()
