"""Evolving schema of JSON values: new fields are added, changed types are widened.

``bigint`` becomes ``double`` if a number has a fraction; after any other conflict, a field becomes a ``string`` that
contains JSON. Columns of existing files keep their types: after a type change, the column gets a new name, so that
all files still form one table (``mergeSchema``). Needs no Spark session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kreplica.spark.pipelines.archive.file_stores import Store
from kreplica.spark.pipelines.archive.layout import FORMAT, NoArchive, schema_file

COLUMN = "json"

FIELDS_MAX = 1000
"""Maximum number of fields at all levels: objects whose keys are data would otherwise keep adding columns."""


class MergedSchema(NamedTuple):
    """Two schemas merged.

    :param is_changed: True if a type changed, so that older files cannot be read with the new schema.
    """

    schema: StructType
    is_changed: bool


class Version(NamedTuple):
    """A schema, and the first batch that uses it.

    :param is_changed: True if a type changed since the previous version; see ``MergedSchema``.
    """

    from_batch: int
    schema: StructType
    is_changed: bool


@dataclass(frozen=True, slots=True)
class History:
    """The schemas of an archive; each contains all fields of its predecessors."""

    versions: tuple[Version, ...] = ()

    @property
    def schema(self) -> StructType:
        """The latest schema."""
        return self.versions[-1].schema if self.versions else StructType()

    @property
    def column(self) -> str:
        """Column name of the latest schema: ``json``; after type changes, ``json_2`` and so on."""
        changes = sum(each.is_changed for each in self.versions)
        return f"{COLUMN}_{changes + 1}" if changes else COLUMN

    @property
    def readable_from(self) -> int:
        """First batch whose files have the column ``column``."""
        return max((each.from_batch for each in self.versions if each.is_changed), default=0)

    def with_batch(self, found: StructType, batch: int) -> History:
        """Return the history with the schema of a batch; unchanged if the batch has no new fields or types."""
        schema, is_changed = merge_schemas(self.schema, found)
        if schema == self.schema:
            return self
        return History((*self.versions, Version(batch, schema, is_changed)))


def merge_schemas(known: StructType, found: StructType, fields_max: int = FIELDS_MAX) -> MergedSchema:
    """Merge two schemas; known fields keep their positions.

    If names differ only in case, only the first is kept, since column names ignore case. Fields beyond ``fields_max``
    are omitted.

    :param found: schema as inferred by Spark.
    """
    merger = _SchemaMerger(fields_max)
    schema = merger.merge_structs(known, found)
    return MergedSchema(schema, merger.is_changed)


class _SchemaMerger:
    def __init__(self, fields_max: int) -> None:
        self._fields_left = fields_max
        self.is_changed = False

    def merge_structs(self, known: StructType, found: StructType) -> StructType:
        additions = {field.name.lower(): field for field in reversed(found.fields)}
        fields = []
        for field in known.fields:
            other = additions.pop(field.name.lower(), None)
            is_same = other is not None and other.name == field.name
            kind = self.merge_types(field.dataType, other.dataType) if other is not None and is_same else field.dataType
            fields.append(StructField(field.name, kind))
        self._fields_left -= len(fields)
        for field in found.fields:
            if additions.get(field.name.lower()) is not field or self._fields_left <= 0:
                continue
            storable_type = self.storable_type(field.dataType)
            if storable_type is not None and field.name:
                self._fields_left -= 1
                fields.append(StructField(field.name, storable_type))
        return StructType(fields)

    def merge_types(self, known: DataType, found: DataType) -> DataType:
        if isinstance(known, StructType) and isinstance(found, StructType):
            return self.merge_structs(known, found)
        if isinstance(known, ArrayType) and isinstance(found, ArrayType):
            return ArrayType(self.merge_types(known.elementType, found.elementType))
        storable_type = self.storable_type(found)
        if storable_type is None or storable_type == known or isinstance(known, StringType):
            return known
        numbers = (LongType, DoubleType)
        if isinstance(known, numbers) and isinstance(storable_type, numbers):
            self.is_changed |= isinstance(known, LongType)
            return DoubleType()
        self.is_changed = True
        return StringType()

    def storable_type(self, kind: DataType) -> DataType | None:
        """Return a type as stored in the schema; None if Spark saw only nulls or empty objects and arrays."""
        if isinstance(kind, StructType):
            inner = self.merge_structs(StructType(), kind)
            return inner if inner.fields else None
        if isinstance(kind, ArrayType):
            element = self.storable_type(kind.elementType)
            return None if element is None else ArrayType(element)
        if isinstance(kind, BooleanType | LongType | DoubleType | StringType):
            return kind
        return None if kind.typeName() == "void" else StringType()  # numbers too large for the other types


def read_history(path: str, store: Store) -> History:
    """Read the schemas of an archive; empty if none was stored.

    :raise NoArchive: the file cannot be parsed.
    """
    text = store.read(schema_file(path))
    if text is None:
        return History()
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']}")
        versions = (
            Version(each["from_batch"], StructType.fromJson(each["schema"]), each["is_changed"])
            for each in document["versions"]
        )
        return History(tuple(versions))
    except (ValueError, KeyError, TypeError) as error:
        raise NoArchive(f"{schema_file(path)} is not a schema file of an archive: {error}") from error


def write_history(path: str, history: History, store: Store) -> None:
    """Write the schemas; must precede the first file that uses the latest one."""
    versions = [
        {"from_batch": each.from_batch, "is_changed": each.is_changed, "schema": each.schema.jsonValue()}
        for each in history.versions
    ]
    store.write(schema_file(path), json.dumps({"format": FORMAT, "versions": versions}, indent=1))
