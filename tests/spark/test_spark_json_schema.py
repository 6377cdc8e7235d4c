"""The schema of JSON values only grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructType,
)

from kreplica.spark.pipelines.archive.file_stores import LocalStore
from kreplica.spark.pipelines.archive.layout import NoArchive, schema_file
from kreplica.spark.pipelines.json_schema import History, merge_schemas, read_history, write_history


def struct(**fields: DataType) -> StructType:
    schema = StructType()
    for name, kind in fields.items():
        schema = schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    ("known", "found", "expected", "is_changed"),
    [
        (LongType(), LongType(), LongType(), False),
        (LongType(), DoubleType(), DoubleType(), True),
        (DoubleType(), LongType(), DoubleType(), False),
        (LongType(), BooleanType(), StringType(), True),
        (LongType(), DecimalType(20, 0), StringType(), True),
        (StringType(), struct(a=LongType()), StringType(), False),
        (struct(a=LongType()), LongType(), StringType(), True),
        (struct(a=LongType()), ArrayType(LongType()), StringType(), True),
        (ArrayType(LongType()), ArrayType(DoubleType()), ArrayType(DoubleType()), True),
        (LongType(), NullType(), LongType(), False),
        (struct(a=LongType()), StructType(), struct(a=LongType()), False),
        (struct(a=LongType()), struct(b=StringType()), struct(a=LongType(), b=StringType()), False),
        (struct(a=LongType()), struct(a=StringType(), b=LongType()), struct(a=StringType(), b=LongType()), True),
    ],
)
def test_field_with_two_types(known: DataType, found: DataType, expected: DataType, is_changed: bool) -> None:
    """Numbers are widened, incompatible types become strings, and nested fields are merged likewise."""
    assert merge_schemas(struct(x=known), struct(x=found)) == (struct(x=expected), is_changed)
    again = merge_schemas(struct(x=expected), struct(x=found))
    assert again == (struct(x=expected), False)


def test_new_fields_are_appended() -> None:
    """New fields keep their order; a field without a known type is not added."""
    found = struct(b=LongType(), a=LongType(), none=NullType(), empty=StructType(), list=ArrayType(NullType()))
    assert merge_schemas(struct(a=LongType()), found).schema == struct(a=LongType(), b=LongType())


def test_names_that_differ_only_by_case() -> None:
    """Only the first name is kept, because a table with both could not be read."""
    assert merge_schemas(struct(a=LongType()), struct(A=StringType())) == (struct(a=LongType()), False)
    assert merge_schemas(StructType(), struct(B=LongType(), b=StringType())).schema == struct(B=LongType())


def test_number_of_fields_is_limited() -> None:
    """Existing fields are kept, and new ones are added up to the limit, even in nested structs."""
    found = struct(**{f"f{number}": LongType() for number in range(10)})
    assert len(merge_schemas(struct(a=LongType()), found, fields_max=4).schema.fields) == 4
    inner = merge_schemas(StructType(), struct(x=found), fields_max=4).schema
    assert len(inner["x"].dataType.fields) == 4
    nine = struct(**{f"g{number}": LongType() for number in range(9)})
    assert merge_schemas(nine, found, fields_max=4).schema.names == [f"g{number}" for number in range(9)]


def test_history_of_a_schema_is_stored(tmp_path: Path) -> None:
    """A batch without new fields changes nothing; from a batch with a changed type on, the column has a new name."""
    history = History().with_batch(struct(a=LongType()), 3)
    assert history.with_batch(struct(a=LongType()), 4) is history
    history = history.with_batch(struct(b=LongType()), 5)
    assert (history.column, history.readable_from) == ("json", 0)
    history = history.with_batch(struct(a=StringType()), 8).with_batch(struct(c=LongType()), 9)
    assert (history.column, history.readable_from) == ("json_2", 8)
    assert history.schema == struct(a=StringType(), b=LongType(), c=LongType())
    write_history(str(tmp_path), history, LocalStore())
    assert read_history(str(tmp_path), LocalStore()) == history
    assert read_history(str(tmp_path / "other"), LocalStore()) == History()
    Path(schema_file(str(tmp_path))).write_text('{"format": 9}')
    with pytest.raises(NoArchive, match=r"schema\.json"):
        read_history(str(tmp_path), LocalStore())
