"""The codec and the handwritten code that the benchmark compares do the same work."""

from __future__ import annotations

import pytest

from benchmarks.codec import Case, calls_of, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_handwritten_code_equals_the_codec(case: Case) -> None:
    """Times are comparable only if both parse and build the same dicts and bytes."""
    calls = calls_of(case)
    assert calls["build by hand"]() == calls["build"]()
    if case.parse_by_hand is not None:
        assert calls["parse by hand"]() == calls["parse"]() == case.value
