"""What the codec is measured against does the same work."""

from __future__ import annotations

import pytest

from benchmarks.codec import Case, cases


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_hand_written_code_makes_of_a_message_what_the_codec_makes_of_it(case: Case):
    """The same dicts from the same bytes, and the same bytes from the same dicts: else times say nothing."""
    data = case.schema.build(case.version, case.value)
    assert case.build_by_hand(case.value) == data
    assert case.parse_by_hand(data) == case.schema.parse(case.version, data) == case.value
