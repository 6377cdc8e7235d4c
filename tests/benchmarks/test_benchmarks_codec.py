"""The handwritten code that the codec is compared with does the same work."""

from __future__ import annotations

import pytest

from benchmarks.codec import Case, calls_of, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_handwritten_code_equals_the_codec(case: Case) -> None:
    """The same dicts from the same bytes, and the reverse: otherwise a comparison of times means nothing."""
    calls = calls_of(case)
    assert calls["build by hand"]() == calls["build"]()
    if case.parse_by_hand is not None:
        assert calls["parse by hand"]() == calls["parse"]() == case.value
