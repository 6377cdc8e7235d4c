"""``Template`` fills numbers into a message."""

from struct import error, pack, unpack

import pytest

from kreplica.wire.template_cache import MARK, Template


def test_numbers_are_filled_in_in_their_places():
    """Of any size; all else stays, and no filling disturbs the next."""
    template = Template(b"head" + pack(">i", MARK) + pack(">q", MARK + 1) + b"between" + pack(">q", MARK + 2), "iqq")
    for numbers in ((1, 2, 3), (-1, 2**63 - 1, -(2**63)), (1, 2, 3)):
        data = template.fill(*numbers)
        assert data[:4] == b"head"
        assert data[16:23] == b"between"
        assert unpack(">iq", data[4:16]) + unpack(">q", data[23:]) == numbers
        assert template.struct.unpack(data)[1::2] == numbers


def test_a_message_without_the_marks_has_no_form():
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="not found"):
        Template(b"head" + pack(">q", MARK + 1), "q")


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (2**31, 1)])
def test_what_does_not_fit_is_refused(numbers):
    """Too few numbers, too many, and one that is too large."""
    template = Template(pack(">iq", MARK, MARK + 1), "iq")
    with pytest.raises((error, ValueError)):
        template.fill(*numbers)
