"""What messages have in common that are alike but for some numbers: the bytes between those."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kreplica.wire.primitives import struct_of

MARK = 0x7E5A_0100
"""The number that stands for the first one of a form while the form is made; the others follow it."""


class Form:
    """A message with places for numbers.

    :param data: the message, with ``MARK`` in the place of the first number, ``MARK + 1`` in that of the second...
    :param codes: the numbers' letters of ``struct``, in the order of their places.
    :ivar struct: reads and writes bytes that stay, a number, bytes that stay, and so on, to such bytes at the end.
    :ivar values: what it reads and writes, with the marks in the places of numbers; who fills in many takes a copy.
    :raise ValueError: a mark is not where it has to be.
    """

    __slots__ = ("struct", "values")

    def __init__(self, data: bytes, codes: Sequence[str]) -> None:
        layout, at = ">", 0
        for number, code in enumerate(codes):
            mark = struct_of(code).pack(MARK + number)
            place = data.index(mark, at)
            layout += f"{place - at}s{code}"
            at = place + len(mark)
        self.struct = Struct(f"{layout}{len(data) - at}s")
        self.values = list(self.struct.unpack(data))

    def filled(self, *numbers: int) -> bytes:
        """The message with these numbers.

        :raise struct.error: one of them does not fit.
        """
        values = self.values.copy()
        values[1::2] = numbers
        return self.struct.pack(*values)
