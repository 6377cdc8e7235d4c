"""``Template`` inserts numbers into an encoded message."""

from struct import error, pack, unpack

import pytest

from kreplica.wire.template_cache import MARK, Template


def test_numbers_are_inserted():
    """Constant bytes are unchanged, and a template can be filled repeatedly."""
    template = Template(b"head" + pack(">i", MARK) + pack(">q", MARK + 1) + b"between" + pack(">q", MARK + 2), "iqq")
    for numbers in ((1, 2, 3), (-1, 2**63 - 1, -(2**63)), (1, 2, 3)):
        data = template.fill(*numbers)
        assert data[:4] == b"head"
        assert data[16:23] == b"between"
        assert unpack(">iq", data[4:16]) + unpack(">q", data[23:]) == numbers
        assert template.struct.unpack(data)[1::2] == numbers


def test_missing_placeholder_is_an_error():
    with pytest.raises(ValueError, match="not found"):
        Template(b"head" + pack(">q", MARK + 1), "q")


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (2**31, 1)])
def test_invalid_numbers_are_refused(numbers):
    """Too few numbers, too many numbers, and a number out of range raise an error."""
    template = Template(pack(">iq", MARK, MARK + 1), "iq")
    with pytest.raises((error, ValueError)):
        template.fill(*numbers)
