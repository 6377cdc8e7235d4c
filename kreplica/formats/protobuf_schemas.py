"""Descriptors of registered Protobuf schemas."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kreplica.formats.compiled_schemas import compiled_once
from kreplica.formats.protobuf_text import compile_text
from kreplica.interfaces.formats import FormatError, RegisteredSchema

_COMPILED = "protobuf"
_WELL_KNOWN = "google/protobuf/"
_ROOT_FILE = "schema-{}.proto"


class CompiledProtobuf:
    """A descriptor pool with a schema and its references.

    :ivar pool: the descriptor pool.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self.pool = DescriptorPool()
        self._added: set[str] = set()
        files = {name: _file(each, name) for name, each in schema.references.items()}
        root = _file(schema, _ROOT_FILE.format(schema.schema_id))
        self._add(root, files)
        self._file = self.pool.FindFileByName(root.name)

    def _add(self, file: Any, files: dict[str, Any]) -> None:
        if file.name in self._added:
            return
        self._added.add(file.name)
        for name in file.dependency:
            imported = files.get(name) or _well_known(name)
            if imported is None:
                raise FormatError(f"imports {name}, which is not among its references")
            self._add(imported, files)
        self.pool.AddSerializedFile(file.SerializeToString())

    def new_message(self, descriptor: Any) -> Any:
        """Return an empty message."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(descriptor)()

    def message_at(self, indexes: Sequence[int]) -> Any:
        """Return the descriptor at a path of indexes: the message in the file, then messages nested in it.

        :raise FormatError: there is none.
        """
        descriptor: Any = None
        messages = list(self._file.message_types_by_name.values())
        for index in indexes:
            if not 0 <= index < len(messages):
                raise FormatError(f"the schema has no message with the indexes {list(indexes)}")
            descriptor = messages[index]
            messages = list(descriptor.nested_types)
        return descriptor

    def message_named(self, name: str) -> Any:
        """Return the descriptor of a message by its full name.

        :raise FormatError: the schema's own file does not define it.
        """
        try:
            found = self.pool.FindMessageTypeByName(name)
        except KeyError:
            found = None
        if found is None or found.file.name != self._file.name:
            names = ", ".join(each.full_name for each in self._file.message_types_by_name.values())
            raise FormatError(f"the schema has no message {name[:200]!r}; it has: {names}")
        return found

    def indexes_of(self, descriptor: Any) -> list[int]:
        """Return the indexes of a message; see ``message_at``."""
        indexes: list[int] = []
        while descriptor is not None:
            parent = descriptor.containing_type
            siblings = list(self._file.message_types_by_name.values()) if parent is None else list(parent.nested_types)
            indexes.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
            descriptor = parent
        return indexes


def compiled_schema(schema: RegisteredSchema) -> CompiledProtobuf:
    """Return the descriptors of a schema, which are built once.

    :raise FormatError: the schema is invalid.
    """
    return compiled_once(schema, _COMPILED, _compile)


def _compile(schema: RegisteredSchema) -> CompiledProtobuf:
    try:
        return CompiledProtobuf(schema)
    except Exception as error:  # the library raises errors of many types for invalid descriptors
        reason = str(error)[:300]
        raise FormatError(f"schema {schema.schema_id} is not a valid Protobuf schema: {reason}") from None


def _file(schema: RegisteredSchema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not schema.is_serialized:
        return compile_text(schema.text, name)
    file = FileDescriptorProto.FromString(b64decode(schema.text))
    file.name = name
    return file


def _well_known(name: str) -> Any:
    """Return a file that the library contains, such as ``google/protobuf/timestamp.proto``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    short = name.removeprefix(_WELL_KNOWN).removesuffix(".proto")
    if not name.startswith(_WELL_KNOWN) or not short.isidentifier():
        return None
    try:
        module = import_module(f"google.protobuf.{short}_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
