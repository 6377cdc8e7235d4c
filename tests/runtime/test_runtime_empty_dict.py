"""The shared empty dictionary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kreplica.runtime.empty_dict import EMPTY_DICT


@pytest.mark.parametrize(
    "change",
    [
        lambda: EMPTY_DICT.__setitem__(1, 2),
        lambda: EMPTY_DICT.setdefault(1, 2),
        lambda: EMPTY_DICT.update({1: 2}),
        lambda: EMPTY_DICT.__ior__({1: 2}),
    ],
)
def test_no_entry_can_be_added(change: Callable[[], object]) -> None:
    """An entry would appear in every object that shares the dictionary."""
    with pytest.raises(TypeError, match="shared"):
        change()
    assert EMPTY_DICT == {}


def test_reads_and_removals_work_as_in_any_empty_dictionary() -> None:
    """Users can remove entries without a check whether they have their own dictionary."""
    assert (EMPTY_DICT.get(1), EMPTY_DICT.pop(1, None), len(EMPTY_DICT), list(EMPTY_DICT)) == (None, None, 0, [])
    assert 1 not in EMPTY_DICT
    with pytest.raises(KeyError):
        del EMPTY_DICT[1]
