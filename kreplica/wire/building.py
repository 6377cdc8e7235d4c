"""Generates the source of one flat building function from a tree of types.

One ``pack`` writes adjacent fixed-size fields and the length or count that follows them.  It also writes an empty tag
section, as a pad byte.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from struct import error as StructError
from typing import Any
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.wire.parsing import SHORT_ARRAY_MAX, literal
from kreplica.wire.primitives import (
    INLINE_SIZE_MAX,
    STEP_COST,
    PrebuiltElements,
    bytes_size,
    records_size,
    struct_of,
    uvarint,
    write_tags,
)
from kreplica.wire.structures import Array, Field, Record
from kreplica.wire.types import Blob, Fixed, Records, Sized, Text, Uuid, WireType

VALUE_ERRORS = (StructError, TypeError, AttributeError, UnicodeEncodeError)
"""Errors that generated builders raise for values that do not fit their fields."""

Builder = Callable[..., list[Any]]
"""Function of a value and, optionally, a prefix in bytes; returns the prefix and the message in pieces."""

SlicedBuilder = Callable[[Any, bytes], Generator[None, None, list[Any]]]


def compile_sliced_builder(root: WireType, *, lenient: bool = True) -> SlicedBuilder:
    """Compile a tree to a generator function that yields after every ``STEP_COST``; see ``compile_builder``.

    Its result has a separate piece for each step, so that the bytes of a large message are never joined.
    """
    return BuilderSource(root, lenient, sliced=True).function()


def compile_builder(root: WireType, *, lenient: bool = True) -> Builder:
    """Compile a tree of types to a building function.

    :param lenient: missing fields get their default; otherwise they raise KeyError, and building is faster.
    :return: a function that returns one or more pieces, the first of them bytes.  Long records and objects with a
        ``size`` are separate pieces.  It raises one of ``VALUE_ERRORS``.
    """
    return BuilderSource(root, lenient).function()


class BuilderSource:
    """Source code of one building function.

    ``_pending_fields`` holds adjacent fixed fields for which no code is emitted yet: the ``struct`` letter and the
    expression, or None for a pad byte.  ``_has_separate_pieces`` is True if the function may return several pieces.

    :param sliced: generate a generator function, which yields between elements of arrays.
    """

    def __init__(self, root: WireType, lenient: bool, *, sliced: bool = False) -> None:
        self._root = root
        self._lenient = lenient
        self._sliced = sliced
        self._lines: list[str] = []
        self._depth = 1
        self._pending_fields: list[tuple[str, str | None]] = []
        self._names = 0
        self._has_separate_pieces = sliced
        self._scope: dict[str, Any] = {
            "ZERO_UUID": ZERO_UUID,
            "UUID": UUID,
            "uvarint": uvarint,
            "write_tags": write_tags,
            "bytes_size": bytes_size,
            "records_size": records_size,
            "Struct": Struct,
            "PrebuiltElements": PrebuiltElements,
            "join": b"".join,
        }

    def function(self) -> Callable[..., Any]:
        """Compile the source and return the function."""
        self._emit_value(self._root, "value")
        self._emit_pending()
        head = ["def build(value, prefix=b''):", "    pieces = [prefix]", "    append = pieces.append"]
        end = ["    return [join(pieces)]"]
        if self._has_separate_pieces:
            head.append("    done = []")
            end = ["    if pieces or not done:", "        done.append(join(pieces))", "    return done"]
        if self._sliced:
            head.append("    step = 0")
            end.append("    yield")  # unreachable; makes this a generator function even without arrays
        lines = [*head, *self._lines, *end]
        exec(compile("\n".join(lines), f"<builder of {self._root!r}>", "exec"), self._scope)
        function: Callable[..., Any] = self._scope["build"]
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

    def _pack_expression(self, fields: list[tuple[str, str | None]]) -> str:
        """Return the expression that packs adjacent fixed fields."""
        if all(expression is None for _, expression in fields):
            return repr(bytes(len(fields)))
        pack = self._add_constant("pack", struct_of("".join(code for code, _ in fields)).pack)
        return f"{pack}({', '.join(expression for _, expression in fields if expression is not None)})"

    def _emit_pending(self) -> None:
        """Emit code that writes the pending fields."""
        if self._pending_fields:
            self._emit(f"append({self._pack_expression(self._pending_fields)})")
            self._pending_fields.clear()

    def _emit_value(self, kind: WireType, expression: str) -> None:
        if isinstance(kind, Fixed):
            self._pending_fields.append((kind.code, f"{expression}.bytes" if isinstance(kind, Uuid) else expression))
        elif isinstance(kind, Record):
            self._emit_nullable_record(kind, expression) if kind.nullable else self._emit_record(kind, expression)
        elif isinstance(kind, Array):
            self._emit_array(kind, expression)
        elif isinstance(kind, Records):
            self._emit_records(kind, expression)
        else:
            assert isinstance(kind, (Text, Blob))
            self._emit_bytes(kind, expression)

    def _emit_length(self, kind: Sized, length: str) -> None:
        """Emit code that writes the pending fields and a length, -1 for null."""
        if not kind.compact:
            self._pending_fields.append((kind.prefix, length))
            self._emit_pending()
            return
        short = self._pack_expression([*self._pending_fields, ("B", f"{length} + 1")])
        self._emit(f"if {length} < 127:")
        self._emit(f"    append({short})")
        self._emit("else:")
        if self._pending_fields:
            self._emit(f"    append({self._pack_expression(self._pending_fields)})")
        self._emit(f"    append(uvarint({length} + 1))")
        self._pending_fields.clear()

    def _emit_bytes(self, kind: Text | Blob, expression: str) -> None:
        data, length = self._new_name("x"), self._new_name("n")
        suffix = ".encode()" if isinstance(kind, Text) else ""
        measure = f"len({data})" if isinstance(kind, Text) else f"bytes_size({data})"
        self._emit(f"{data} = {expression}")
        if kind.nullable:
            self._emit(f"if {data} is None:")
            self._emit(f"    {data} = b''")
            self._emit(f"    {length} = -1")
            self._emit("else:")
            if suffix:
                self._emit(f"    {data} = {data}{suffix}")
            self._emit(f"    {length} = {measure}")
        else:
            self._lines[-1] += suffix
            self._emit(f"{length} = {measure}")
        self._emit_length(kind, length)
        self._emit(f"append({data})")

    def _emit_records(self, kind: Records, expression: str) -> None:
        data, length = self._new_name("x"), self._new_name("n")
        self._emit(f"{data} = {expression}")
        plain = f"{data}.__class__ is bytes"
        self._emit(f"{length} = len({data}) if {plain} else -1 if {data} is None else records_size({data})")
        self._emit_length(kind, length)
        self._emit(f"if {length} > 0:")
        self._emit(f"    if {length} >= {INLINE_SIZE_MAX} or not {plain} and hasattr({data}, 'size'):")
        self._emit(f"        done += (join(pieces), {data})")
        self._emit("        pieces.clear()")
        self._emit("    else:")
        self._emit(f"        append({data})")
        self._has_separate_pieces = True

    def _emit_array(self, kind: Array, expression: str) -> None:
        items, length = self._new_name("x"), self._new_name("n")
        self._emit(f"{items} = {expression}")
        if kind.nullable:
            self._emit(f"{length} = -1 if {items} is None else len({items})")
        else:
            self._emit(f"{length} = len({items})")
        item = kind.item
        if isinstance(item, Fixed) and not isinstance(item, Uuid):
            self._emit_numbers(kind, item, items, length)
            return
        self._emit_length(kind, length)
        if isinstance(item, Record):
            self._emit(f"if {items}.__class__ is PrebuiltElements:")
            if self._sliced:
                self._emit(f"    done += (join(pieces), *{items}.pieces)")
                self._emit("    pieces.clear()")
            else:
                self._emit(f"    pieces += {items}.pieces")
            self._emit(f"elif {length} > 0:")
        else:
            self._emit(f"if {length} > 0:")
        self._depth += 1
        element = self._new_name("i")
        if isinstance(item, Record) and self._has_fixed_size(item) and not self._sliced:
            self._emit_record(item, element)
            packed = self._pack_expression(self._pending_fields)
            self._pending_fields.clear()
            self._emit(f"pieces += [{packed} for {element} in {items}]")
        else:
            self._emit(f"for {element} in {items}:")
            self._depth += 1
            self._emit_value(item, element)
            self._emit_pending()
            if self._sliced:
                self._emit_step(item.cost)
            self._depth -= 1
        self._depth -= 1

    def _emit_step(self, cost: int) -> None:
        self._emit(f"step += {cost}")
        self._emit(f"if step >= {STEP_COST}:")
        self._emit("    step = 0")
        self._emit("    if pieces:")
        self._emit("        done.append(join(pieces))")
        self._emit("        pieces.clear()")
        self._emit("    yield")

    @staticmethod
    def _has_fixed_size(item: Record) -> bool:
        """Return True if one ``pack`` can write the whole record."""
        return not item.nullable and not item.tagged and all(isinstance(field.type, Fixed) for field in item.fields)

    def _emit_numbers(self, kind: Array, item: Fixed, items: str, length: str) -> None:
        """Emit code that writes an array of numbers, with one ``pack`` if it is short."""
        prefix, count = ("B", f"{length} + 1") if kind.compact else (kind.prefix, length)
        packers = [struct_of(f"{prefix}{number}{item.code}").pack for number in range(SHORT_ARRAY_MAX + 1)]
        packs = self._add_constant("packs", packers)
        self._emit_pending()
        self._emit(f"if 0 <= {length} <= {SHORT_ARRAY_MAX}:")
        self._emit(f"    append({packs}[{length}]({count}, *{items}))")
        self._emit("else:")
        self._depth += 1
        self._emit_length(kind, length)
        self._emit(f"if {length} > 0:")
        self._emit(f"    append(Struct('>%d{item.code}' % {length}).pack(*{items}))")
        self._depth -= 1

    def _emit_nullable_record(self, kind: Record, expression: str) -> None:
        self._emit_pending()
        value = self._new_name("x")
        self._emit(f"{value} = {expression}")
        self._emit(f"if {value} is None:")
        self._emit("    append(b'\\xff')")
        self._emit("else:")
        self._depth += 1
        self._pending_fields.append(("b", "1"))
        self._emit_record(kind, value)
        self._emit_pending()
        self._depth -= 1

    def _field_expression(self, field: Field, expression: str) -> str:
        if not self._lenient:
            return f"{expression}[{field.name!r}]"
        default = field.default
        text = self._add_constant("default", default) if isinstance(default, (dict, list)) else literal(default)
        return f"{expression}.get({field.name!r}, {text})"

    def _emit_record(self, kind: Record, expression: str) -> None:
        if not expression.isidentifier() and kind.fields:
            name = self._new_name("r")
            self._emit(f"{name} = {expression}")
            expression = name
        for field in kind.fields:
            self._emit_value(field.type, self._field_expression(field, expression))
        if kind.tagged:
            self._emit_tags(kind, expression)
        elif kind.flexible:
            self._pending_fields.append(("x", None))

    def _emit_tags(self, kind: Record, expression: str) -> None:
        """Emit code that writes a tag section; an empty one is packed with the pending fields."""
        fields, unchanged = [], []
        for field in kind.tagged:
            value, default = self._new_name("t"), self._add_constant("default", field.default)
            build = compile_builder(field.type, lenient=self._lenient)
            inner = self._add_constant("build", lambda value, build=build: b"".join(build(value)))
            self._emit(f"{value} = {expression}.get({field.name!r}, {default})")
            fields.append(f"({field.tag}, {value}, {default}, {inner})")
            unchanged.append(f"({value} is {default} or {value} == {default})")
        empty = self._pack_expression([*self._pending_fields, ("x", None)])
        self._emit(f"if {' and '.join(unchanged)}:")
        self._emit(f"    append({empty})")
        self._emit("else:")
        if self._pending_fields:
            self._emit(f"    append({self._pack_expression(self._pending_fields)})")
        self._emit(f"    append(write_tags(({', '.join(fields)},)))")
        self._pending_fields.clear()
