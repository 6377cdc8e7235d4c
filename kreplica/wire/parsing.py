"""Generates the source of one flat parsing function from a tree of types.

One ``unpack_from`` reads adjacent fixed-size fields and the length or count that follows them; ``iter_unpack`` reads
arrays of fixed-size rows.  The count of an array is checked against the remaining bytes before the array is read.  The
length of a string or byte field is not checked: if it is too large, the next read or the check at the end fails.
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
    CostLimitExceeded,
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
"""Maximum length of number arrays that have a precompiled ``Struct``."""

NUMBERS_PER_STEP = 8192
"""Maximum number of array elements (numbers) that a sliced parser reads between two yields."""

Parser = Callable[[Buffer, int], tuple[Any, int]]

SlicedParser = Callable[[Buffer, int], Generator[None, None, tuple[Any, int]]]


def compile_parser(root: WireType, cost_max: int = COST_MAX) -> Parser:
    """Compile a tree of types to a parsing function.

    :param cost_max: maximum cost of a message.
    :return: a function of a buffer and a position that returns the value and the position after it, and raises one of
        ``INPUT_ERRORS``.
    """
    return ParserSource(root, cost_max=cost_max).function()


def compile_sliced_parser(root: WireType, cost_max: int = COST_MAX) -> SlicedParser:
    """Compile a tree to a generator function that yields after every ``STEP_COST``, for large messages.

    :param cost_max: maximum cost of a message.
    """
    return ParserSource(root, sliced=True, cost_max=cost_max).function()


def literal(value: Any) -> str:
    """Return a Python expression that creates a default value."""
    if isinstance(value, UUID):
        return "ZERO_UUID" if value == ZERO_UUID else f"UUID({str(value)!r})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {literal(item)}" for name, item in value.items()) + "}"
    return repr(value)


class ParserSource:
    """Source code of one parsing function.

    ``_pending_fields`` holds the ``struct`` letters and variable names of adjacent fixed fields; no code that reads
    them is emitted until they are complete, so that one ``unpack_from`` reads all of them.

    :param inner: True for a field of a tag section; the function also takes and returns the cost of the message so far.
    :param sliced: generate a generator function, which yields between elements of arrays.
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
        self._pending_fields: list[tuple[str, str]] = []
        self._names = 0
        self._scope: dict[str, Any] = {
            "CostLimitExceeded": CostLimitExceeded,
            "MalformedError": MalformedError,
            "ZERO_UUID": ZERO_UUID,
            "UUID": UUID,
            "uuid_of": uuid_of,
            "uvarint_rest": uvarint_rest,
            "read_tags": read_tags,
            "Struct": Struct,
        }

    def function(self) -> Callable[..., Any]:
        """Compile the source.

        :return: a function of ``(buffer, position)``, or with ``inner`` of ``(buffer, position, size, cost)``.
        """
        result = self._emit_value(self._root)
        self._emit_pending()
        self._emit("if position > size:")
        self._emit("    raise MalformedError")
        self._emit(f"return {result}, position{', cost' if self._inner else ''}")
        if self._inner:
            head = ["def parse(buffer, position, size, cost):"]
        else:
            head = ["def parse(buffer, position=0):", "    size = len(buffer)", "    cost = 0"]
        if self._sliced:
            head.append("    step = 0")
            self._emit("yield")  # unreachable; makes this a generator function even without arrays
        if any("view[" in line for line in self._lines):
            head.append("    view = memoryview(buffer)")
        exec(compile("\n".join(head + self._lines), f"<parser of {self._root!r}>", "exec"), self._scope)
        function: Callable[..., Any] = self._scope["parse"]
        return function

    def _emit(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _new_name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _add_constant(self, stem: str, value: Any) -> str:
        name = self._new_name(stem)
        self._scope[name] = value
        return name

    def _defer_read(self, code: str) -> str:
        """Add a fixed-size field to the pending fields; return the name of the variable that will hold its value."""
        name = self._new_name("v")
        self._pending_fields.append((code, name))
        return name

    def _emit_pending(self) -> None:
        """Emit code that reads the pending fields."""
        if not self._pending_fields:
            return
        codes = "".join(code for code, _ in self._pending_fields)
        names = ", ".join(name for _, name in self._pending_fields)
        self._pending_fields.clear()
        if codes == "B":
            self._emit(f"{names} = buffer[position]")
            self._emit("position += 1")
            return
        struct = struct_of(codes)
        unpack = self._add_constant("unpack", struct.unpack_from)
        self._emit(f"{names}{',' if len(codes) == 1 or codes == '16s' else ''} = {unpack}(buffer, position)")
        self._emit(f"position += {struct.size}")

    def _emit_value(self, kind: WireType) -> str:
        """Emit code that reads one value, and return the expression of the value."""
        if isinstance(kind, Uuid):
            return f"uuid_of({self._defer_read('16s')})"
        if isinstance(kind, Fixed):
            return self._defer_read(kind.code)
        if isinstance(kind, Record):
            return self._emit_nullable_record(kind) if kind.nullable else self._emit_record(kind)
        if isinstance(kind, Array):
            return self._emit_sized(kind, lambda length, target: self._emit_array(kind, length, target))
        assert isinstance(kind, Sized)
        return self._emit_sized(kind, lambda length, target: self._emit_content(kind, length, target))

    def _emit_sized(self, kind: Sized, content: Callable[[str, str], None]) -> str:
        """Emit code that reads a length and the content after it; return the variable that holds the content."""
        target = self._new_name("x")
        length = self._defer_read("B" if kind.compact else kind.prefix)
        self._emit_pending()
        if kind.compact:
            self._emit(f"if {length} > 127:")
            self._emit(f"    {length}, position = uvarint_rest(buffer, position, {length})")
            self._emit(f"{length} -= 1")
        self._emit(f"if {length} < 0:")
        if kind.nullable:
            self._emit(f"    if {length} != -1:")
            self._emit("        raise MalformedError")
            self._emit(f"    {target} = None")
            self._emit("else:")
            self._depth += 1
            content(length, target)
            self._emit_pending()
            self._depth -= 1
        else:
            self._emit("    raise MalformedError")
            content(length, target)
        return target

    def _emit_content(self, kind: Sized, length: str, target: str) -> None:
        end = self._new_name("end")
        self._emit(f"{end} = position + {length}")
        if isinstance(kind, Text):
            self._emit(f"{target} = str(buffer[position:{end}], 'utf-8')")
        elif isinstance(kind, Records):
            self._emit(f"{target} = view[position:{end}]")
        else:
            self._emit(f"{target} = bytes(buffer[position:{end}])")
        self._emit(f"position = {end}")

    def _emit_array(self, kind: Array, length: str, target: str) -> None:
        item = kind.item
        self._emit(f"if {length} * {item.size_min} > size - position:")
        self._emit("    raise MalformedError")
        are_numbers = isinstance(item, Fixed) and not isinstance(item, Uuid)
        self._emit(f"cost += {length} * {item.cost}" if item.cost > 1 else f"cost += {length}")
        self._emit(f"if cost > {self._cost_max}:")
        self._emit("    raise CostLimitExceeded")
        if are_numbers:
            self._emit_numbers(item, length, target)
            return
        if isinstance(item, Record) and not self._sliced and self._try_emit_rows(item, length, target):
            self._emit("else:")
            self._depth += 1
            self._emit_loop(item, length, target)
            self._depth -= 1
        else:
            self._emit_loop(item, length, target)

    def _emit_loop(self, item: WireType, length: str, target: str) -> None:
        self._emit(f"{target} = []")
        self._emit(f"for _ in range({length}):")
        self._depth += 1
        value = self._emit_value(item)
        self._emit_pending()
        self._emit(f"{target}.append({value})")
        if self._sliced:
            self._emit(f"step += {item.cost}")
            self._emit(f"if step >= {STEP_COST}:")
            self._emit("    step = 0")
            self._emit("    yield")
        self._depth -= 1

    def _emit_numbers(self, item: Fixed, length: str, target: str) -> None:
        unpacks = [struct_of(f"{count}{item.code}").unpack_from for count in range(SHORT_ARRAY_MAX + 1)]
        ready = self._add_constant("unpacks", unpacks)
        self._emit(f"if {length} <= {SHORT_ARRAY_MAX}:")
        self._emit(f"    {target} = [*{ready}[{length}](buffer, position)]")
        if self._sliced:
            self._emit_numbers_in_steps(item, length, target)
        self._emit("else:")
        self._emit(f"    {target} = [*Struct('>%d{item.code}' % {length}).unpack_from(buffer, position)]")
        self._emit(f"position += {length} * {item.size_min}")

    def _emit_numbers_in_steps(self, item: Fixed, length: str, target: str) -> None:
        at, count = self._new_name("at"), self._new_name("count")
        self._emit(f"elif {length} > {NUMBERS_PER_STEP}:")
        self._emit(f"    {target} = []")
        self._emit(f"    for {at} in range(0, {length}, {NUMBERS_PER_STEP}):")
        self._emit(f"        {count} = min({length} - {at}, {NUMBERS_PER_STEP})")
        unpack = f"Struct('>%d{item.code}' % {count}).unpack_from(buffer, position + {at} * {item.size_min})"
        self._emit(f"        {target} += {unpack}")
        self._emit("        yield")

    def _try_emit_rows(self, item: Record, length: str, target: str) -> bool:
        """Emit an ``if`` that reads an array of fixed-size rows in one step if no row has tags.

        The caller emits the ``else``.

        :return: False, with nothing emitted, if the rows have no fixed size.
        """
        if item.nullable or not all(isinstance(field.type, Fixed) for field in item.fields):
            return False
        names = [self._new_name("v") for _ in item.fields]
        codes = "".join(field.type.code for field in item.fields) + "x" * item.flexible
        struct = struct_of(codes)
        end = self._new_name("end")
        self._emit(f"{end} = position + {length} * {struct.size}")
        tags = f"any(buffer[position + {struct.size - 1} : {end} : {struct.size}])"
        self._emit(f"if not {tags}:" if item.flexible else "if True:")
        values = [
            f"uuid_of({name})" if isinstance(field.type, Uuid) else name
            for name, field in zip(names, item.fields, strict=True)
        ]
        row = self._dict_expression(item, values, [literal(field.default) for field in item.tagged])
        rows = self._add_constant("rows", struct.iter_unpack)
        self._emit(f"    {target} = [{row} for {', '.join(names)}, in {rows}(buffer[position:{end}])]")
        self._emit(f"    position = {end}")
        return True

    def _emit_nullable_record(self, kind: Record) -> str:
        target = self._new_name("x")
        present = self._defer_read("b")
        self._emit_pending()
        self._emit(f"if {present} < 0:")
        self._emit(f"    {target} = None")
        self._emit("else:")
        self._depth += 1
        value = self._emit_record(kind)
        self._emit_pending()
        self._emit(f"{target} = {value}")
        self._depth -= 1
        return target

    def _emit_record(self, kind: Record) -> str:
        values = [self._emit_value(field.type) for field in kind.fields]
        tagged = self._emit_tags(kind) if kind.flexible else []
        return self._dict_expression(kind, values, tagged)

    @staticmethod
    def _dict_expression(kind: Record, values: list[str], tagged: list[str]) -> str:
        fields: list[Field] = [*kind.fields, *kind.tagged]
        return "{" + ", ".join(f"{f.name!r}: {value}" for f, value in zip(fields, values + tagged, strict=True)) + "}"

    def _emit_tags(self, kind: Record) -> list[str]:
        """Emit code that reads the tag section, and return the variables that hold the tagged fields."""
        first = self._defer_read("B")
        self._emit_pending()
        names = [self._new_name("t") for _ in kind.tagged]
        for name, field in zip(names, kind.tagged, strict=True):
            self._emit(f"{name} = {literal(field.default)}")
        parsers = {field.tag: ParserSource(field.type, inner=True).function() for field in kind.tagged}
        table = self._add_constant("parsers", parsers)
        self._emit(f"if {first}:")
        self._emit(f"    found, position, cost = read_tags(buffer, position, size, {first}, cost, {table})")
        if self._sliced:
            self._emit(f"    step += {first} * {TAG_COST}")
        for name, field in zip(names, kind.tagged, strict=True):
            self._emit(f"    if {field.tag} in found:")
            self._emit(f"        {name} = found[{field.tag}]")
        return names
