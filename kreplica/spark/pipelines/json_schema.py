"""The fields that JSON values were seen to have, as they grow: new ones are added, changed types become wider ones.

``bigint`` becomes ``double`` where a number has a point; whatever else does not go together becomes ``string``, which
holds any JSON as its text.  Columns of files do not change their types: from then on the column has another name, so
that all files together are still one table (``mergeSchema``).  Nothing here needs a session.
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
"""Of all levels together; values whose keys are names of things would make columns without end."""


class Merged(NamedTuple):
    """Two schemas in one.

    :param is_changed: some type is not what it was, so that files with it cannot be read by the new schema.
    """

    schema: StructType
    is_changed: bool


class Version(NamedTuple):
    """A schema, and since which batch it is in use.

    :param is_changed: against the one before it; see ``Merged``.
    """

    from_batch: int
    schema: StructType
    is_changed: bool


@dataclass(frozen=True, slots=True)
class History:
    """The schemas of an archive, each with all that was in those before it."""

    versions: tuple[Version, ...] = ()

    @property
    def schema(self) -> StructType:
        """The last one."""
        return self.versions[-1].schema if self.versions else StructType()

    @property
    def column(self) -> str:
        """The name of the column that has the last schema: ``json``, after a change of types ``json_2``."""
        changes = sum(each.is_changed for each in self.versions)
        return f"{COLUMN}_{changes + 1}" if changes else COLUMN

    @property
    def readable_from(self) -> int:
        """Files of batches from this one on have that column."""
        return max((each.from_batch for each in self.versions if each.is_changed), default=0)

    def grown(self, found: StructType, batch: int) -> History:
        """With what a batch was found to have; the same where that is nothing new."""
        schema, is_changed = merged(self.schema, found)
        if schema == self.schema:
            return self
        return History((*self.versions, Version(batch, schema, is_changed)))


def merged(known: StructType, found: StructType, fields_max: int = FIELDS_MAX) -> Merged:
    """What holds the values of both; known fields keep their places.

    Of names that differ by case alone the first one stays: tables know no case.  What does not fit into ``fields_max``
    is left out.

    :param found: as Spark infers it.
    """
    merging = _Merging(fields_max)
    schema = merging.structs(known, found)
    return Merged(schema, merging.is_changed)


class _Merging:
    def __init__(self, fields_max: int) -> None:
        self._left = fields_max
        self.is_changed = False

    def structs(self, known: StructType, found: StructType) -> StructType:
        additions = {field.name.lower(): field for field in reversed(found.fields)}
        fields = []
        for field in known.fields:
            other = additions.pop(field.name.lower(), None)
            is_same = other is not None and other.name == field.name
            kind = self.types(field.dataType, other.dataType) if other is not None and is_same else field.dataType
            fields.append(StructField(field.name, kind))
        self._left -= len(fields)
        for field in found.fields:
            if additions.get(field.name.lower()) is not field or self._left <= 0:
                continue
            cleaned = self.cleaned(field.dataType)
            if cleaned is not None and field.name:
                self._left -= 1
                fields.append(StructField(field.name, cleaned))
        return StructType(fields)

    def types(self, known: DataType, found: DataType) -> DataType:
        if isinstance(known, StructType) and isinstance(found, StructType):
            return self.structs(known, found)
        if isinstance(known, ArrayType) and isinstance(found, ArrayType):
            return ArrayType(self.types(known.elementType, found.elementType))
        cleaned = self.cleaned(found)
        if cleaned is None or cleaned == known or isinstance(known, StringType):
            return known
        numbers = (LongType, DoubleType)
        if isinstance(known, numbers) and isinstance(cleaned, numbers):
            self.is_changed |= isinstance(known, LongType)
            return DoubleType()
        self.is_changed = True
        return StringType()

    def cleaned(self, kind: DataType) -> DataType | None:
        """A type as it is kept; None: it says nothing yet."""
        if isinstance(kind, StructType):
            inner = self.structs(StructType(), kind)
            return inner if inner.fields else None
        if isinstance(kind, ArrayType):
            element = self.cleaned(kind.elementType)
            return None if element is None else ArrayType(element)
        if isinstance(kind, BooleanType | LongType | DoubleType | StringType):
            return kind
        return None if kind.typeName() == "void" else StringType()  # numbers that are too long for others


def read_history(path: str, store: Store) -> History:
    """The schemas of an archive; none where none was found yet.

    :raise NoArchive: what is there cannot be read.
    """
    text = store.read(schema_file(path))
    if text is None:
        return History()
    try:
        rows = json.loads(text)
        if rows["format"] != FORMAT:
            raise ValueError(f"its format is {rows['format']}")
        versions = (
            Version(each["from_batch"], StructType.fromJson(each["schema"]), each["is_changed"])
            for each in rows["versions"]
        )
        return History(tuple(versions))
    except (ValueError, KeyError, TypeError) as error:
        raise NoArchive(f"{schema_file(path)} is not what an archive has there: {error}") from error


def write_history(path: str, history: History, store: Store) -> None:
    """Keep the schemas; before the first file that has the last one is written."""
    versions = [
        {"from_batch": each.from_batch, "is_changed": each.is_changed, "schema": each.schema.jsonValue()}
        for each in history.versions
    ]
    store.write(schema_file(path), json.dumps({"format": FORMAT, "versions": versions}, indent=1))
