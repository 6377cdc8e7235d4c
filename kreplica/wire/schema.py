"""Schema of a message: parsers and builders, compiled from text for each version when first used."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kreplica.errors import LargeMessage, ProtocolError
from kreplica.wire.building import VALUE_ERRORS, Builder, SlicedBuilder, compile_builder, compile_sliced_builder
from kreplica.wire.grammar import Line, check_field_names, make_tree, read_lines
from kreplica.wire.parsing import INPUT_ERRORS, compile_parser, compile_sliced_parser
from kreplica.wire.primitives import COST_MAX, Buffer, CostLimitExceeded
from kreplica.wire.structures import Record
from kreplica.wire.template_cache import VaryingFields

MessageParser = Callable[..., dict[str, Any]]
"""Function of a buffer and, optionally, the offset at which the message starts."""

MessageBuilder = Callable[[dict[str, Any]], bytes]

SlicedMessageParser = Callable[..., Generator[None, None, dict[str, Any]]]
"""Generator function of a buffer and the offset at which the message starts; it returns the message."""

DIAGNOSED_ELEMENTS_MAX = 500
"""Maximum number of elements of a malformed message that are parsed again to find the error: a few milliseconds."""


class Schema:
    """Schema of one message in all versions, with a cache of its compiled functions.

    :param name: name of the message; paths in errors start with it.
    :param versions: lowest and highest version.
    :param flexible_from: the first version with the encodings of KIP-482, or None.
    :param text: the fields, in the format of ``kreplica.wire.grammar``.
    :param varying: fields in which frequent messages differ, for ``MessageParsers``; None if templates do not help.
    :param cost_max: maximum cost of a parsed message, in the units of ``COST_MAX``.
    :param step_cost_max: maximum cost of a message that ``parse`` accepts; None for ``cost_max``.
    """

    def __init__(
        self,
        name: str,
        versions: tuple[int, int],
        flexible_from: int | None,
        text: str,
        varying: VaryingFields | None = None,
        cost_max: int = COST_MAX,
        step_cost_max: int | None = None,
    ) -> None:
        self.name = name
        self.versions = range(versions[0], versions[1] + 1)
        self.flexible_from = flexible_from
        self._text = text
        self.varying = varying
        self._cost_max = cost_max
        self._step_cost_max = step_cost_max
        self._lines: list[Line] | None = None
        self._trees: dict[int, Record] = {}
        self._parsers: dict[int, MessageParser] = {}
        self._builders: dict[int, MessageBuilder] = {}
        self._piece_builders: dict[int, Builder] = {}
        self._elements: dict[tuple[int, tuple[str, ...]], MessageBuilder] = {}
        self._sliced_parsers: dict[tuple[int, int], SlicedMessageParser] = {}
        self._sliced_builders: dict[tuple[int, tuple[str, ...]], SlicedBuilder] = {}

    def __repr__(self) -> str:
        return f"<Schema {self.name} {self.versions[0]}-{self.versions[-1]}>"

    def is_flexible(self, version: int) -> bool:
        """Return True if a version has the encodings of KIP-482."""
        return self.flexible_from is not None and version >= self.flexible_from

    def parse(self, version: int, buffer: Buffer, offset: int = 0) -> dict[str, Any]:
        """Parse a message.

        :param offset: start of the message; bytes after the message are ignored.
        :return: the fields of this version; records are views of the buffer, other bytes are copies.
        :raise ProtocolError: the bytes are malformed, or the message has no such version; the error names the field.
        :raise LargeMessage: the message costs more than ``step_cost_max``; ``sliced_parser`` can parse it.
        """
        return (self._parsers.get(version) or self.parser(version))(buffer, offset)

    def build(self, version: int, value: dict[str, Any]) -> bytes:
        """Build a message; missing fields get their default, and unknown fields are ignored.

        :raise ProtocolError: a value does not fit its field; the error names the field.
        """
        return self.builder(version)(value)

    def build_pieces(self, version: int, value: dict[str, Any], prefix: bytes = b"") -> list[Any]:
        """Build a message whose records may be an object with a ``size`` in bytes, such as a range of a file.

        :param prefix: bytes before the message in the first buffer.
        :return: buffers in order; records of 4 KiB and more, and such objects, are separate items.
        :raise ProtocolError: as in ``build``.
        """
        builder = self._piece_builders.get(version) or self._piece_builder(version)
        return builder(value, prefix)

    def parser(self, version: int) -> MessageParser:
        """Return ``parse`` of one version, for the hot path."""
        parser = self._parsers.get(version)
        if parser is None:
            parser = self._parsers[version] = self._make_parser(version)
        return parser

    def builder(self, version: int) -> MessageBuilder:
        """Return ``build`` of one version, for the hot path."""
        builder = self._builders.get(version)
        if builder is None:
            builder = self._builders[version] = self._make_builder(version)
        return builder

    def element(self, version: int, *names: str) -> MessageBuilder:
        """Return a builder of one array element, for arrays of prebuilt elements (``PrebuiltElements``).

        :param names: path of field names from the message to the array.
        """
        builder = self._elements.get((version, names))
        if builder is None:
            kind = self._element_type(version, names)
            builder = self._elements[version, names] = _message_builder(kind, _piece_builder(kind))
        return builder

    def sliced_parser(self, version: int, cost_max: int = COST_MAX) -> SlicedMessageParser:
        """Return ``parse`` of one version as a generator function, which yields every ``STEP_COST``.

        :param cost_max: maximum cost of the message, in the units of ``COST_MAX``.
        """
        cost_max = min(cost_max, self._cost_max)
        parser = self._sliced_parsers.get((version, cost_max))
        if parser is None:
            parser = self._sliced_parsers[version, cost_max] = _sliced_parser(self.tree(version), cost_max)
        return parser

    def sliced_builder(self, version: int, *names: str) -> SlicedBuilder:
        """Return ``build_pieces`` of one version as a generator function, which yields every ``STEP_COST``.

        :param names: path to an array, as in ``element``, to build one of its elements; empty for the whole message.
        """
        builder = self._sliced_builders.get((version, names))
        if builder is None:
            builder = _sliced_builder(self._element_type(version, names))
            self._sliced_builders[version, names] = builder
        return builder

    def _element_type(self, version: int, names: tuple[str, ...]) -> Any:
        kind: Any = self.tree(version)
        for name in names:
            kind = next(field.type for field in kind.fields if field.name == name).item
        return kind

    def parse_uncompiled(self, version: int, buffer: Buffer, offset: int = 0) -> dict[str, Any]:
        """Parse with the types instead of a compiled function: slower, with errors that name the field."""
        data = memoryview(buffer)[offset:]
        value: dict[str, Any] = self.tree(version).parse(data, cost_max=self._cost_max)
        return value

    def build_uncompiled(self, version: int, value: dict[str, Any]) -> bytes:
        """Build with the types instead of a compiled function: slower, with errors that name the field.

        :raise ValueError: no version of this message has a field of that name.
        """
        check_field_names(self._read_lines(), value, self.name)
        data: bytes = self.tree(version).build(value)
        return data

    def tree(self, version: int) -> Record:
        """Return the type tree of one version.

        :raise ProtocolError: the message has no such version.
        """
        tree = self._trees.get(version)
        if tree is None:
            if version not in self.versions:
                supported = f"{self.versions[0]} to {self.versions[-1]}"
                raise ProtocolError(self.name, f"version {version} is not within {supported}")
            tree = make_tree(self._read_lines(), version, flexible=self.is_flexible(version), title=self.name)
            self._trees[version] = tree
        return tree

    def _read_lines(self) -> list[Line]:
        if self._lines is None:
            self._lines = read_lines(self._text)
        return self._lines

    def _make_parser(self, version: int) -> MessageParser:
        tree = self.tree(version)
        cost_max = self._cost_max
        step_cost_max = self._step_cost_max
        parse = compile_parser(tree, cost_max if step_cost_max is None else step_cost_max)

        def parse_message(buffer: Buffer, offset: int = 0) -> dict[str, Any]:
            try:
                value: dict[str, Any] = parse(buffer, offset)[0]
                return value
            except CostLimitExceeded:
                if step_cost_max is not None:
                    raise LargeMessage(tree.title, "too many elements to be parsed in one step") from None
            except INPUT_ERRORS:
                pass  # frees the partial result before the message is parsed again
            return _parse_with_errors(tree, buffer, offset, cost_max)

        return parse_message

    def _make_builder(self, version: int) -> MessageBuilder:
        return _message_builder(self.tree(version), self._piece_builder(version))

    def _piece_builder(self, version: int) -> Builder:
        builder = self._piece_builders.get(version)
        if builder is None:
            builder = self._piece_builders[version] = _piece_builder(self.tree(version))
        return builder


def _parse_with_errors(tree: Record, buffer: Buffer, offset: int, cost_max: int = COST_MAX) -> dict[str, Any]:
    """Parse a malformed message with the types, whose errors name the field."""
    data = memoryview(buffer)[offset:]
    value: dict[str, Any] = tree.parse(data, elements_left=DIAGNOSED_ELEMENTS_MAX, cost_max=cost_max)
    return value


def _sliced_parser(tree: Record, cost_max: int) -> SlicedMessageParser:
    parse = compile_sliced_parser(tree, cost_max)

    def parse_sliced(buffer: Buffer, offset: int) -> Generator[None, None, dict[str, Any]]:
        try:
            parsed = yield from parse(buffer, offset)
        except INPUT_ERRORS:
            pass  # frees the partial result before the message is parsed again
        else:
            value: dict[str, Any] = parsed[0]
            return value
        return _parse_with_errors(tree, buffer, offset, cost_max)

    return parse_sliced


def _sliced_builder(tree: Record) -> SlicedBuilder:
    """Return a sliced builder that compiles the lenient form when it is first needed, as ``_piece_builder`` does."""
    strict = compile_sliced_builder(tree, lenient=False)
    lenient: SlicedBuilder | None = None

    def build_sliced(value: Any, prefix: bytes = b"") -> Generator[None, None, list[Any]]:
        nonlocal lenient
        try:
            try:
                return (yield from strict(value, prefix))
            except KeyError:
                if lenient is None:
                    lenient = compile_sliced_builder(tree)
            return (yield from lenient(value, prefix))
        except VALUE_ERRORS:
            tree.build(value, accept_sized_objects=True)  # raises an error that names the field
            raise

    return build_sliced


def _message_builder(tree: Record, build_pieces: Builder) -> MessageBuilder:
    join = b"".join

    def build_message(value: dict[str, Any]) -> bytes:
        pieces = build_pieces(value)
        try:
            return join(pieces)
        except TypeError:  # an object with a size, which is not bytes
            tree.build(value)
            raise

    return build_message


def _piece_builder(tree: Record) -> Builder:
    """Return a builder that compiles the lenient form when a field is first missing; most callers set all fields."""
    strict = compile_builder(tree, lenient=False)
    lenient: Builder | None = None

    def build_pieces(value: dict[str, Any], prefix: bytes = b"") -> list[Any]:
        nonlocal lenient
        try:
            try:
                return strict(value, prefix)
            except KeyError:
                if lenient is None:
                    lenient = compile_builder(tree)
            return lenient(value, prefix)
        except VALUE_ERRORS:
            tree.build(value, accept_sized_objects=True)  # raises an error that names the field
            raise

    return build_pieces
