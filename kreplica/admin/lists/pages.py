"""Filters, sorts and pages the rows of a list in slices that do not block the reactor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, TypeVar

from kreplica.admin.http.api import Call, page_of
from kreplica.admin.lists.columns import Selection
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

RUN_ROWS = 1000
"""Number of rows that are sorted in one step, about half a millisecond."""

STEP_KEYS = 50
"""Number of keys between two checks of the clock; an authorizer takes a microsecond or more per key."""

Key = TypeVar("Key")

ValueOf = Callable[[Any], Any]
"""Returns the value of one column, from the key of a row."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list.

    :param following: ``after`` of the next page, if the list is sorted by its key; None on the last page.
    :param total: number of rows on all pages.
    """

    rows: list[Row]
    following: str | None
    total: int


async def read_page(
    reactor: Reactor, keys: Sequence[Any], call: Call, selection: Selection, values: Mapping[str, ValueOf]
) -> Page:
    """Return the requested page; values outside its rows are computed only for conditions and sorting.

    :param keys: keys of all rows, in their order.
    :param values: functions for all columns that the request needs.
    """
    time_slice = TimeSlice(reactor)  # shared by all steps, so that consecutive steps do not add up to a longer slice
    matching = await _matching(time_slice, keys, selection, values)
    key = selection.fields[0]
    if selection.sort != key:
        matching = await _sort(time_slice, matching, values[selection.sort], descending=selection.descending)
    elif selection.descending:
        matching = matching[::-1]
    number, limit = call.query.get("page"), call.query["limit"]
    following = None
    if number is not None:
        page_keys = matching[(number - 1) * limit : number * limit]
    elif selection.sort == key and not selection.descending:
        page_keys, following = page_of(matching, call)
    else:
        page_keys = matching[:limit]
    rows = []
    columns = [(field, values[field]) for field in selection.fields]
    for each in page_keys:
        rows.append({field: value_of(each) for field, value_of in columns})
        if time_slice.is_over:
            await time_slice.next()
    return Page(rows, following, len(matching))


async def keys_with(reactor: Reactor, keys: Iterable[Key], predicate: Callable[[Key], bool]) -> list[Key]:
    """Return the keys for which a function returns True, in their order."""
    time_slice = TimeSlice(reactor)
    found = []
    for number, key in enumerate(keys):
        if predicate(key):
            found.append(key)
        if number % STEP_KEYS == 0 and time_slice.is_over:
            await time_slice.next()
    return found


async def _matching(
    time_slice: TimeSlice, keys: Sequence[Any], selection: Selection, values: Mapping[str, ValueOf]
) -> Sequence[Any]:
    conditions = [(condition.holds, values[condition.column]) for condition in selection.conditions]
    if not conditions:
        return keys
    found = []
    for key in keys:
        if all(holds(value_of(key)) for holds, value_of in conditions):
            found.append(key)
        if time_slice.is_over:
            await time_slice.next()
    return found


async def _sort(time_slice: TimeSlice, keys: Sequence[Any], value_of: ValueOf, *, descending: bool) -> Sequence[Any]:
    """Return the keys sorted by a column; the sort is stable, and keys without a value are last."""
    known: list[tuple[Any, Any]] = []
    unknown: list[Any] = []
    for key in keys:
        value = value_of(key)
        if value is None:
            unknown.append(key)
        else:
            known.append((value, key))
        if time_slice.is_over:
            await time_slice.next()
    runs = []
    for start in range(0, len(known), RUN_ROWS):
        runs.append(sorted(known[start : start + RUN_ROWS], key=_value, reverse=descending))
        if time_slice.is_over:
            await time_slice.next()
    result = []
    for _, key in merge(*runs, key=_value, reverse=descending):
        result.append(key)
        if time_slice.is_over:
            await time_slice.next()
    return [*result, *unknown]


def _value(pair: tuple[Any, Any]) -> Any:
    return pair[0]
