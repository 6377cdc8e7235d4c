"""Generates the source of one flat parsing function from a tree of types.

One ``unpack_from`` reads adjacent fields of fixed size and the length or count after them; ``iter_unpack`` reads arrays
of rows of fixed size.  A length that exceeds the buffer is not checked when it is read: the next read or the check at
the end fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.wire.primitives import (
    COST_MAX,
    STEP_COST,
    TAG_COST,
    Buffer,
    CostlyError,
    MalformedError,
    read_tags,
    struct_of,
    uuid_of,
    uvarint_rest,
)
from kreplica.wire.structures import Array, Field, Record
from kreplica.wire.types import Fixed, Records, Sized, Text, Uuid, WireType

INPUT_ERRORS = (MalformedError, StructError, IndexError, UnicodeDecodeError)
"""Errors that generated parsers raise for malformed bytes."""

SHORT_ARRAY_MAX = 16
"""Number arrays up to this length have a ready ``Struct``."""

NUMBERS_PER_STEP = 8192
"""Numbers of an array that a sliced parser reads between two yields."""

Parser = Callable[[Buffer, int], tuple[Any, int]]

SlicedParser = Callable[[Buffer, int], Generator[None, None, tuple[Any, int]]]


def compile_parser(root: WireType, cost_max: int = COST_MAX) -> Parser:
    """Compile a tree.

    :param cost_max: in place of ``COST_MAX``.
    :return: a function of a buffer and a position that returns the value and the position after it, and raises one of
        ``INPUT_ERRORS``.
    """
    return ParserSource(root, cost_max=cost_max).function()


def compile_sliced_parser(root: WireType, cost_max: int = COST_MAX) -> SlicedParser:
    """Compile a tree to a generator function that yields after elements of ``STEP_COST``, for large messages.

    :param cost_max: in place of ``COST_MAX``.
    """
    return ParserSource(root, sliced=True, cost_max=cost_max).function()


def literal(value: Any) -> str:
    """Return a Python expression that creates this default value."""
    if isinstance(value, UUID):
        return "ZERO_UUID" if value == ZERO_UUID else f"UUID({str(value)!r})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    return repr(value)


class ParserSource:
    """Source of one parsing function.

    ``_run`` holds fixed fields that are not read yet, so that they can be read together with the next ones.

    :param inner: for a field of a tag section; the function also takes and returns the frame's cost.
    :param sliced: make a generator function, which yields between elements of arrays.
    """

    def __init__(
        self, root: WireType, *, inner: bool = False, sliced: bool = False, cost_max: int = COST_MAX
    ) -> None:
        self._root = root
        self._cost_max = cost_max
        self._inner = inner
        self._sliced = sliced
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str]] = []
        self._names = 0
        self._scope: dict[str, Any] = {
            "CostlyError": CostlyError,
            "MalformedError": MalformedError,
            "ZERO_UUID": ZERO_UUID,
            "UUID": UUID,
            "uuid_of": uuid_of,
            "uvarint_rest": uvarint_rest,
            "read_tags": read_tags,
            "Struct": Struct,
        }

    def function(self) -> Callable[..., Any]:
        """Create the function: ``(buffer, position)``, or with ``inner`` ``(buffer, position, size, cost)``."""
        result = self._value(self._root)
        self._flush()
        self._line("if position > size:")
        self._line("    raise MalformedError")
        self._line(f"return {result}, position{', cost' if self._inner else ''}")
        if self._inner:
            head = ["def parse(buffer, position, size, cost):"]
        else:
            head = ["def parse(buffer, position=0):", "    size = len(buffer)", "    cost = 0"]
        if self._sliced:
            head.append("    step = 0")
            self._line("yield")  # unreachable; makes a generator function of any tree
        if any("view[" in line for line in self._lines):
            head.append("    view = memoryview(buffer)")
        exec(compile("\n".join(head + self._lines), f"<parser of {self._root!r}>", "exec"), self._scope)
        function: Callable[..., Any] = self._scope["parse"]
        return function

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _constant(self, stem: str, value: Any) -> str:
        name = self._name(stem)
        self._scope[name] = value
        return name

    def _read(self, code: str) -> str:
        """Add a fixed field to the run, and return its variable name."""
        name = self._name("v")
        self._run.append((code, name))
        return name

    def _flush(self) -> None:
        """Generate the read of the run."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        names = ", ".join(name for _, name in self._run)
        self._run.clear()
        if codes == "B":
            self._line(f"{names} = buffer[position]")
            self._line("position += 1")
            return
        struct = struct_of(codes)
        unpack = self._constant("unpack", struct.unpack_from)
        self._line(f"{names}{',' if len(codes) == 1 or codes == '16s' else ''} = {unpack}(buffer, position)")
        self._line(f"position += {struct.size}")

    def _value(self, kind: WireType) -> str:
        """Generate the read of one value, and return its expression."""
        if isinstance(kind, Uuid):
            return f"uuid_of({self._read('16s')})"
        if isinstance(kind, Fixed):
            return self._read(kind.code)
        if isinstance(kind, Record):
            return self._nullable_record(kind) if kind.nullable else self._record(kind)
        if isinstance(kind, Array):
            return self._sized(kind, lambda length, target: self._array(kind, length, target))
        assert isinstance(kind, Sized)
        return self._sized(kind, lambda length, target: self._content(kind, length, target))

    def _sized(self, kind: Sized, content: Callable[[str, str], None]) -> str:
        """Generate the read of a length and its content."""
        target = self._name("x")
        length = self._read("B" if kind.compact else kind.prefix)
        self._flush()
        if kind.compact:
            self._line(f"if {length} > 127:")
            self._line(f"    {length}, position = uvarint_rest(buffer, position, {length})")
            self._line(f"{length} -= 1")
        self._line(f"if {length} < 0:")
        if kind.nullable:
            self._line(f"    if {length} != -1:")
            self._line("        raise MalformedError")
            self._line(f"    {target} = None")
            self._line("else:")
            self._depth += 1
            content(length, target)
            self._flush()
            self._depth -= 1
        else:
            self._line("    raise MalformedError")
            content(length, target)
        return target

    def _content(self, kind: Sized, length: str, target: str) -> None:
        end = self._name("end")
        self._line(f"{end} = position + {length}")
        if isinstance(kind, Text):
            self._line(f"{target} = str(buffer[position:{end}], 'utf-8')")
        elif isinstance(kind, Records):
            self._line(f"{target} = view[position:{end}]")
        else:
            self._line(f"{target} = bytes(buffer[position:{end}])")
        self._line(f"position = {end}")

    def _array(self, kind: Array, length: str, target: str) -> None:
        item = kind.item
        self._line(f"if {length} * {item.size_min} > size - position:")
        self._line("    raise MalformedError")
        are_numbers = isinstance(item, Fixed) and not isinstance(item, Uuid)
        self._line(f"cost += {length} * {item.cost}" if item.cost > 1 else f"cost += {length}")
        self._line(f"if cost > {self._cost_max}:")
        self._line("    raise CostlyError")
        if are_numbers:
            self._numbers(item, length, target)
            return
        if isinstance(item, Record) and not self._sliced and self._rows(item, length, target):
            self._line("else:")
            self._depth += 1
            self._loop(item, length, target)
            self._depth -= 1
        else:
            self._loop(item, length, target)

    def _loop(self, item: WireType, length: str, target: str) -> None:
        self._line(f"{target} = []")
        self._line(f"for _ in range({length}):")
        self._depth += 1
        value = self._value(item)
        self._flush()
        self._line(f"{target}.append({value})")
        if self._sliced:
            self._line(f"step += {item.cost}")
            self._line(f"if step >= {STEP_COST}:")
            self._line("    step = 0")
            self._line("    yield")
        self._depth -= 1

    def _numbers(self, item: Fixed, length: str, target: str) -> None:
        unpacks = [struct_of(f"{count}{item.code}").unpack_from for count in range(SHORT_ARRAY_MAX + 1)]
        ready = self._constant("unpacks", unpacks)
        self._line(f"if {length} <= {SHORT_ARRAY_MAX}:")
        self._line(f"    {target} = [*{ready}[{length}](buffer, position)]")
        if self._sliced:
            self._many_numbers(item, length, target)
        self._line("else:")
        self._line(f"    {target} = [*Struct('>%d{item.code}' % {length}).unpack_from(buffer, position)]")
        self._line(f"position += {length} * {item.size_min}")

    def _many_numbers(self, item: Fixed, length: str, target: str) -> None:
        at, count = self._name("at"), self._name("count")
        self._line(f"elif {length} > {NUMBERS_PER_STEP}:")
        self._line(f"    {target} = []")
        self._line(f"    for {at} in range(0, {length}, {NUMBERS_PER_STEP}):")
        self._line(f"        {count} = min({length} - {at}, {NUMBERS_PER_STEP})")
        unpack = f"Struct('>%d{item.code}' % {count}).unpack_from(buffer, position + {at} * {item.size_min})"
        self._line(f"        {target} += {unpack}")
        self._line("        yield")

    def _rows(self, item: Record, length: str, target: str) -> bool:
        """Generate the read of an array of fixed-size rows without tags in one step, inside an open ``if``.

        :return: false if the rows have no fixed size; nothing was generated then.
        """
        if item.nullable or not all(isinstance(field.type, Fixed) for field in item.fields):
            return False
        names = [self._name("v") for _ in item.fields]
        codes = "".join(field.type.code for field in item.fields) + "x" * item.flexible
        struct = struct_of(codes)
        end = self._name("end")
        self._line(f"{end} = position + {length} * {struct.size}")
        tags = f"any(buffer[position + {struct.size - 1} : {end} : {struct.size}])"
        self._line(f"if not {tags}:" if item.flexible else "if True:")
        values = [
            f"uuid_of({name})" if isinstance(field.type, Uuid) else name
            for name, field in zip(names, item.fields, strict=True)
        ]
        row = self._dict(item, values, [literal(field.default) for field in item.tagged])
        rows = self._constant("rows", struct.iter_unpack)
        self._line(f"    {target} = [{row} for {', '.join(names)}, in {rows}(buffer[position:{end}])]")
        self._line(f"    position = {end}")
        return True

    def _nullable_record(self, kind: Record) -> str:
        target = self._name("x")
        present = self._read("b")
        self._flush()
        self._line(f"if {present} < 0:")
        self._line(f"    {target} = None")
        self._line("else:")
        self._depth += 1
        value = self._record(kind)
        self._flush()
        self._line(f"{target} = {value}")
        self._depth -= 1
        return target

    def _record(self, kind: Record) -> str:
        values = [self._value(field.type) for field in kind.fields]
        tagged = self._tags(kind) if kind.flexible else []
        return self._dict(kind, values, tagged)

    @staticmethod
    def _dict(kind: Record, values: list[str], tagged: list[str]) -> str:
        fields: list[Field] = [*kind.fields, *kind.tagged]
        return "{" + ", ".join(f"{f.name!r}: {value}" for f, value in zip(fields, values + tagged, strict=True)) + "}"

    def _tags(self, kind: Record) -> list[str]:
        """Generate the read of the tag section, and return the expressions of the tagged fields."""
        first = self._read("B")
        self._flush()
        names = [self._name("t") for _ in kind.tagged]
        for name, field in zip(names, kind.tagged, strict=True):
            self._line(f"{name} = {literal(field.default)}")
        parsers = {field.tag: ParserSource(field.type, inner=True).function() for field in kind.tagged}
        table = self._constant("parsers", parsers)
        self._line(f"if {first}:")
        self._line(f"    found, position, cost = read_tags(buffer, position, size, {first}, cost, {table})")
        if self._sliced:
            self._line(f"    step += {first} * {TAG_COST}")
        for name, field in zip(names, kind.tagged, strict=True):
            self._line(f"    if {field.tag} in found:")
            self._line(f"        {name} = found[{field.tag}]")
        return names
