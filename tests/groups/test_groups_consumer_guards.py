"""Disabling any fencing rule of KIP-848 groups changes a transcript."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import test_groups_consumer_heartbeats as heartbeats
import test_groups_consumer_static as static

from kreplica.groups.consumer import fencing

GUARDS: dict[str, tuple[object, Callable[[], None]]] = {
    "is_current_epoch": (True, heartbeats.test_lost_response),
    "missed_last_response": (True, heartbeats.test_previous_epoch_with_reassigned_partitions),
    "is_epoch_of_commit": (True, heartbeats.test_offset_commits_and_fetches),
    "is_free": (True, heartbeats.test_second_member),
    "has_revoked": (True, heartbeats.test_second_member),
    "check_instance": (None, static.test_static_member_restarts),
    "check_released": (None, static.test_member_that_has_not_left_is_not_replaced),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_transcript_differs_without_the_rule(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disabled_result, check = GUARDS[guard]
    monkeypatch.setattr(fencing, guard, lambda *_: disabled_result)
    with pytest.raises(AssertionError, match="actual transcript"):
        check()
