"""Generates the source of one flat building function from a tree of types.

One ``pack`` writes adjacent fields of fixed size and the length or count after them; an empty tag section is a pad byte
of that ``pack``.
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
    Built,
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
"""Function of a value and, optionally, of bytes to put before it."""


SlicedBuilder = Callable[[Any, bytes], Generator[None, None, list[Any]]]


def compile_sliced_builder(root: WireType, *, lenient: bool = True) -> SlicedBuilder:
    """Compile a tree to a generator function that yields after elements of ``STEP_COST``; see ``compile_builder``.

    Its result has a separate piece for each step, so that the bytes of a large message are never joined.
    """
    return BuilderSource(root, lenient, sliced=True).function()


def compile_builder(root: WireType, *, lenient: bool = True) -> Builder:
    """Compile a tree.

    :param lenient: missing fields take their default; otherwise they raise KeyError, and building is faster.
    :return: a function that returns one or more pieces; the first is bytes.  Long records and objects with a ``size``
        are pieces of their own.  It raises one of ``VALUE_ERRORS``.
    """
    return BuilderSource(root, lenient).function()


class BuilderSource:
    """Source of one building function.

    ``_run`` holds fixed fields that are not written yet: ``struct`` letter and expression, None for a pad byte.
    ``_has_apart`` is True if the message can have pieces of their own.

    :param sliced: make a generator function, which yields between elements of arrays.
    """

    def __init__(self, root: WireType, lenient: bool, *, sliced: bool = False) -> None:
        self._root = root
        self._lenient = lenient
        self._sliced = sliced
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str | None]] = []
        self._names = 0
        self._has_apart = sliced
        self._scope: dict[str, Any] = {
            "ZERO_UUID": ZERO_UUID,
            "UUID": UUID,
            "uvarint": uvarint,
            "write_tags": write_tags,
            "bytes_size": bytes_size,
            "records_size": records_size,
            "Struct": Struct,
            "Built": Built,
            "join": b"".join,
        }

    def function(self) -> Callable[..., Any]:
        """Create the function."""
        self._value(self._root, "value")
        self._flush()
        head = ["def build(value, prefix=b''):", "    pieces = [prefix]", "    append = pieces.append"]
        end = ["    return [join(pieces)]"]
        if self._has_apart:
            head.append("    done = []")
            end = ["    if pieces or not done:", "        done.append(join(pieces))", "    return done"]
        if self._sliced:
            head.append("    step = 0")
            end.append("    yield")  # unreachable; makes a generator function of any tree
        lines = [*head, *self._lines, *end]
        exec(compile("\n".join(lines), f"<builder of {self._root!r}>", "exec"), self._scope)
        function: Callable[..., Any] = self._scope["build"]
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

    def _packed(self, run: list[tuple[str, str | None]]) -> str:
        """Return the expression that packs a run of fixed fields."""
        if all(expression is None for _, expression in run):
            return repr(bytes(len(run)))
        pack = self._constant("pack", struct_of("".join(code for code, _ in run)).pack)
        return f"{pack}({', '.join(expression for _, expression in run if expression is not None)})"

    def _flush(self) -> None:
        """Generate the write of the run."""
        if self._run:
            self._line(f"append({self._packed(self._run)})")
            self._run.clear()

    def _value(self, kind: WireType, expression: str) -> None:
        if isinstance(kind, Fixed):
            self._run.append((kind.code, f"{expression}.bytes" if isinstance(kind, Uuid) else expression))
        elif isinstance(kind, Record):
            self._nullable_record(kind, expression) if kind.nullable else self._record(kind, expression)
        elif isinstance(kind, Array):
            self._array(kind, expression)
        elif isinstance(kind, Records):
            self._records(kind, expression)
        else:
            assert isinstance(kind, (Text, Blob))
            self._bytes(kind, expression)

    def _length(self, kind: Sized, length: str) -> None:
        """Generate the write of a length, -1 for null, together with the run before it."""
        if not kind.compact:
            self._run.append((kind.prefix, length))
            self._flush()
            return
        short = self._packed([*self._run, ("B", f"{length} + 1")])
        self._line(f"if {length} < 127:")
        self._line(f"    append({short})")
        self._line("else:")
        if self._run:
            self._line(f"    append({self._packed(self._run)})")
        self._line(f"    append(uvarint({length} + 1))")
        self._run.clear()

    def _bytes(self, kind: Text | Blob, expression: str) -> None:
        data, length = self._name("x"), self._name("n")
        suffix = ".encode()" if isinstance(kind, Text) else ""
        measure = f"len({data})" if isinstance(kind, Text) else f"bytes_size({data})"
        self._line(f"{data} = {expression}")
        if kind.nullable:
            self._line(f"if {data} is None:")
            self._line(f"    {data} = b''")
            self._line(f"    {length} = -1")
            self._line("else:")
            if suffix:
                self._line(f"    {data} = {data}{suffix}")
            self._line(f"    {length} = {measure}")
        else:
            self._lines[-1] += suffix
            self._line(f"{length} = {measure}")
        self._length(kind, length)
        self._line(f"append({data})")

    def _records(self, kind: Records, expression: str) -> None:
        data, length = self._name("x"), self._name("n")
        self._line(f"{data} = {expression}")
        plain = f"{data}.__class__ is bytes"
        self._line(f"{length} = len({data}) if {plain} else -1 if {data} is None else records_size({data})")
        self._length(kind, length)
        self._line(f"if {length} > 0:")
        self._line(f"    if {length} >= {INLINE_SIZE_MAX} or not {plain} and hasattr({data}, 'size'):")
        self._line(f"        done += (join(pieces), {data})")
        self._line("        pieces.clear()")
        self._line("    else:")
        self._line(f"        append({data})")
        self._has_apart = True

    def _array(self, kind: Array, expression: str) -> None:
        items, length = self._name("x"), self._name("n")
        self._line(f"{items} = {expression}")
        if kind.nullable:
            self._line(f"{length} = -1 if {items} is None else len({items})")
        else:
            self._line(f"{length} = len({items})")
        item = kind.item
        if isinstance(item, Fixed) and not isinstance(item, Uuid):
            self._numbers(kind, item, items, length)
            return
        self._length(kind, length)
        if isinstance(item, Record):
            self._line(f"if {items}.__class__ is Built:")
            if self._sliced:
                self._line(f"    done += (join(pieces), *{items}.pieces)")
                self._line("    pieces.clear()")
            else:
                self._line(f"    pieces += {items}.pieces")
            self._line(f"elif {length} > 0:")
        else:
            self._line(f"if {length} > 0:")
        self._depth += 1
        element = self._name("i")
        if isinstance(item, Record) and self._is_row(item) and not self._sliced:
            self._record(item, element)
            packed = self._packed(self._run)
            self._run.clear()
            self._line(f"pieces += [{packed} for {element} in {items}]")
        else:
            self._line(f"for {element} in {items}:")
            self._depth += 1
            self._value(item, element)
            self._flush()
            if self._sliced:
                self._step(item.cost)
            self._depth -= 1
        self._depth -= 1

    def _step(self, cost: int) -> None:
        self._line(f"step += {cost}")
        self._line(f"if step >= {STEP_COST}:")
        self._line("    step = 0")
        self._line("    if pieces:")
        self._line("        done.append(join(pieces))")
        self._line("        pieces.clear()")
        self._line("    yield")

    @staticmethod
    def _is_row(item: Record) -> bool:
        """Return whether one ``pack`` can write the whole record."""
        return not item.nullable and not item.tagged and all(isinstance(field.type, Fixed) for field in item.fields)

    def _numbers(self, kind: Array, item: Fixed, items: str, length: str) -> None:
        """Generate the write of an array of numbers, with one ``pack`` if it is short."""
        prefix, count = ("B", f"{length} + 1") if kind.compact else (kind.prefix, length)
        ready = [struct_of(f"{prefix}{number}{item.code}").pack for number in range(SHORT_ARRAY_MAX + 1)]
        packs = self._constant("packs", ready)
        self._flush()
        self._line(f"if 0 <= {length} <= {SHORT_ARRAY_MAX}:")
        self._line(f"    append({packs}[{length}]({count}, *{items}))")
        self._line("else:")
        self._depth += 1
        self._length(kind, length)
        self._line(f"if {length} > 0:")
        self._line(f"    append(Struct('>%d{item.code}' % {length}).pack(*{items}))")
        self._depth -= 1

    def _nullable_record(self, kind: Record, expression: str) -> None:
        self._flush()
        value = self._name("x")
        self._line(f"{value} = {expression}")
        self._line(f"if {value} is None:")
        self._line("    append(b'\\xff')")
        self._line("else:")
        self._depth += 1
        self._run.append(("b", "1"))
        self._record(kind, value)
        self._flush()
        self._depth -= 1

    def _field(self, field: Field, expression: str) -> str:
        if not self._lenient:
            return f"{expression}[{field.name!r}]"
        default = field.default
        shown = self._constant("default", default) if isinstance(default, (dict, list)) else literal(default)
        return f"{expression}.get({field.name!r}, {shown})"

    def _record(self, kind: Record, expression: str) -> None:
        if not expression.isidentifier() and kind.fields:
            name = self._name("r")
            self._line(f"{name} = {expression}")
            expression = name
        for field in kind.fields:
            self._value(field.type, self._field(field, expression))
        if kind.tagged:
            self._tags(kind, expression)
        elif kind.flexible:
            self._run.append(("x", None))

    def _tags(self, kind: Record, expression: str) -> None:
        """Generate the write of a tag section; an empty one is packed with the run before it."""
        fields, unchanged = [], []
        for field in kind.tagged:
            value, default = self._name("t"), self._constant("default", field.default)
            build = compile_builder(field.type, lenient=self._lenient)
            inner = self._constant("build", lambda value, build=build: b"".join(build(value)))
            self._line(f"{value} = {expression}.get({field.name!r}, {default})")
            fields.append(f"({field.tag}, {value}, {default}, {inner})")
            unchanged.append(f"({value} is {default} or {value} == {default})")
        empty = self._packed([*self._run, ("x", None)])
        self._line(f"if {' and '.join(unchanged)}:")
        self._line(f"    append({empty})")
        self._line("else:")
        if self._run:
            self._line(f"    append({self._packed(self._run)})")
        self._line(f"    append(write_tags(({', '.join(fields)},)))")
        self._run.clear()
