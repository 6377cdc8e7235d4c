"""What the codec is measured against does the same work."""

from __future__ import annotations

import pytest

from benchmarks.codec import Case, calls_of, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_hand_written_code_makes_of_a_message_what_the_codec_makes_of_it(case: Case) -> None:
    """The same dicts from the same bytes, and the same bytes from the same dicts: else times say nothing."""
    calls = calls_of(case)
    assert calls["build by hand"]() == calls["build"]()
    if case.parse_by_hand is not None:
        assert calls["parse by hand"]() == calls["parse"]() == case.value
