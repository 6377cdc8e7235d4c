"""Compiles the source text of Protobuf schemas, for registries that do not return serialized descriptors.

It compiles only the parts that decoding and encoding need: messages, fields, enums and oneofs. Services, extensions and
options other than ``allow_alias`` are ignored.
"""

from __future__ import annotations

from typing import Any

from kreplica.interfaces.formats import FormatError

TEXT_LENGTH_MAX = 64 * 1024
"""Maximum length of a text; the parser, written in Python, takes about a second for it."""

_SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip


def compile_text(text: str, name: str) -> Any:
    """Return the ``FileDescriptorProto`` of a schema.

    :param name: name of the file.
    :raise FormatError: the text is too long or malformed, or uses an unsupported feature.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise FormatError(f"the schema's text is longer than {TEXT_LENGTH_MAX:,} characters")
    from antlr4.error.ErrorListener import ErrorListener
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from proto_schema_parser.parser import Parser

    class Listener(ErrorListener):  # type: ignore[misc]
        """Raises an error instead of printing it."""

        def syntaxError(
            self, recognizer: Any, offendingSymbol: Any, line: int, column: int, msg: str, e: Exception | None
        ) -> None:
            raise FormatError(f"line {line}, column {column + 1}: {msg[:100]}")

    def listen(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(Listener())

    parsed = Parser(setup_lexer=listen, setup_parser=listen).parse(text)
    if parsed.edition:
        raise FormatError(f"edition {parsed.edition} is not supported")
    file = FileDescriptorProto(name=name, syntax=parsed.syntax or "proto2")
    for element in parsed.file_elements:
        kind = type(element).__name__
        if kind == "Package":
            file.package = element.name
        elif kind == "Import":
            file.dependency.append(element.name)
            if element.public:
                file.public_dependency.append(len(file.dependency) - 1)
        elif kind == "Message":
            _add_message(element, file.message_type.add(), is_proto3=file.syntax == "proto3")
        elif kind == "Enum":
            _add_enum(element, file.enum_type.add())
    return file


def _add_message(parsed: Any, message: Any, *, is_proto3: bool) -> None:
    message.name = parsed.name
    with_presence = []
    for element in parsed.elements:
        kind = type(element).__name__
        if kind == "Field":
            field = _add_field(element, message)
            if is_proto3 and _label(element) == "LABEL_OPTIONAL":
                with_presence.append(field)
        elif kind == "MapField":
            _add_map(element, message)
        elif kind == "OneOf":
            message.oneof_decl.add(name=element.name)
            for each in element.elements:
                if type(each).__name__ == "Field":
                    _add_field(each, message).oneof_index = len(message.oneof_decl) - 1
                elif type(each).__name__ == "Group":
                    raise FormatError("groups are not supported")
        elif kind == "Message":
            _add_message(element, message.nested_type.add(), is_proto3=is_proto3)
        elif kind == "Enum":
            _add_enum(element, message.enum_type.add())
        elif kind == "Group":
            raise FormatError("groups are not supported")
    # The oneofs of optional fields are after the others.
    for field in with_presence:
        field.proto3_optional = True
        message.oneof_decl.add(name=f"_{field.name}")
        field.oneof_index = len(message.oneof_decl) - 1


def _label(parsed: Any) -> str | None:
    """Return the label of a field; None without one."""
    return None if parsed.cardinality is None else f"LABEL_{parsed.cardinality.value.upper()}"


def _add_field(parsed: Any, message: Any) -> Any:
    field = message.field.add(name=parsed.name, number=parsed.number, label=_label(parsed) or "LABEL_OPTIONAL")
    _set_type(field, parsed.type)
    return field


def _set_type(field: Any, name: str) -> None:
    """Set the type; names of messages and enums are resolved by the descriptor pool."""
    if name in _SCALARS:
        field.type = getattr(field, f"TYPE_{name.upper()}")
    else:
        field.type_name = name


def _add_map(parsed: Any, message: Any) -> None:
    words = parsed.name.split("_")
    entry = message.nested_type.add(name="".join(word[:1].upper() + word[1:] for word in words) + "Entry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", parsed.key_type), ("value", parsed.value_type)), 1):
        _set_type(entry.field.add(name=name, number=number, label="LABEL_OPTIONAL"), kind)
    message.field.add(name=parsed.name, number=parsed.number, label="LABEL_REPEATED", type_name=entry.name)


def _add_enum(parsed: Any, enum: Any) -> None:
    enum.name = parsed.name
    for element in parsed.elements:
        kind = type(element).__name__
        if kind == "EnumValue":
            enum.value.add(name=element.name, number=element.number)
        elif kind == "Option" and element.name == "allow_alias" and element.value is True:
            enum.options.allow_alias = True
