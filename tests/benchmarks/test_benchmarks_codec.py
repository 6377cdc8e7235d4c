"""The codec and the handwritten code that the benchmark compares do the same work."""

from __future__ import annotations

import pytest

from benchmarks.codec import Case, calls_of, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_handwritten_code_equals_the_codec(case: Case) -> None:
    """Both parse the same bytes to the same dicts, and build the same bytes, so that their times are comparable."""
    calls = calls_of(case)
    assert calls["build by hand"]() == calls["build"]()
    if case.parse_by_hand is not None:
        assert calls["parse by hand"]() == calls["parse"]() == case.value
