"""A strict evaluator for the subset of PromQL that the dashboard uses; it rejects everything else.

``evaluate`` computes a query from two scrapes at the ends of a range. Like in Prometheus, a query may have no result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]

_TOKEN = re.compile(r'\s*(?:(\d+(?:\.\d+)?)|("[^"]*")|(=~|!=|=)|([A-Za-z_:$][\w:$]*)|([(){}\[\],*/+-]))')
_AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min}
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
NEVER_REPEATED = 1e-9


class Scrapes(NamedTuple):
    """The samples at the two ends of a range, by full name."""

    first: Mapping[str, Vector]
    last: Mapping[str, Vector]
    seconds: float


class QueryError(Exception):
    """A query is invalid, or uses a name that does not exist."""


def evaluate(query: str, scrapes: Scrapes) -> Vector | float:
    """Return the value of a query at the end of the range.

    :raise QueryError: an unknown name, label, function or operator.
    """
    reader = _Reader(query, scrapes)
    value = reader.expression()
    if reader.token is not None:
        raise QueryError(f"{reader.token!r} is unexpected in {query}")
    return value


class _Reader:
    def __init__(self, query: str, scrapes: Scrapes) -> None:
        self._tokens = _tokens(query)
        self._scrapes = scrapes
        self._at = 0

    @property
    def token(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.token
        if token is None or (expected is not None and token != expected):
            raise QueryError(f"{expected or 'something'} is expected instead of {token!r}")
        self._at += 1
        return token

    def expression(self) -> Vector | float:
        value = self.operand()
        while self.token in _ARITHMETIC:
            sign = self.take()
            value = _combined(_ARITHMETIC[sign], value, self.operand())
        return value

    def operand(self) -> Vector | float:
        token = self.take()
        if token[0].isdigit():
            return float(token)
        if token in _AGGREGATIONS:
            return self._aggregation(_AGGREGATIONS[token])
        if self.token == "(":
            return self._function(token)
        return self._selector(token, self._scrapes.last)

    def _aggregation(self, reduce: Callable[[Sequence[float]], float]) -> Vector:
        by: list[str] = []
        if self.token == "by":
            self.take()
            by = self._names()
        self.take("(")
        vector = _vector(self.expression())
        self.take(")")
        for labels in vector:
            missing = [name for name in by if name not in dict(labels)]
            if missing:
                raise QueryError(f"there is no label {missing[0]} in {dict(labels)}")
        groups: dict[Labels, list[float]] = {}
        for labels, value in vector.items():
            groups.setdefault(tuple((n, v) for n, v in labels if n in by), []).append(value)
        return {labels: reduce(values) for labels, values in groups.items()}

    def _names(self) -> list[str]:
        self.take("(")
        names = [self.take()]
        while self.token == ",":
            self.take()
            names.append(self.take())
        self.take(")")
        return names

    def _function(self, name: str) -> Vector:
        self.take("(")
        if name == "rate":
            value = self._rate()
        elif name == "topk":
            count = int(self.take())
            self.take(",")
            vector = _vector(self.expression())
            value = dict(sorted(vector.items(), key=lambda item: -item[1])[:count])
        elif name == "histogram_quantile":
            quantile = float(self.take())
            self.take(",")
            value = _quantile(quantile, _vector(self.expression()))
        else:
            raise QueryError(f"there is no function {name}")
        self.take(")")
        return value

    def _rate(self) -> Vector:
        name = self.take()
        if not name.endswith(("_total", "_sum", "_count", "_bucket")):
            raise QueryError(f"{name} is not a counter")
        start = self._at
        first = self._selector(name, self._scrapes.first)
        end, self._at = self._at, start
        last = self._selector(name, self._scrapes.last)
        assert end == self._at
        self.take("[")
        self.take("$__rate_interval")
        self.take("]")
        return {k: (last[k] - first[k]) / self._scrapes.seconds for k in last if k in first}

    def _selector(self, name: str, scrape: Mapping[str, Vector]) -> Vector:
        if name not in scrape:
            raise QueryError(f"there is no metric {name}")
        found = dict(scrape[name])
        if self.token == "{":
            self.take()
            while self.token != "}":
                found = self._matching(name, found)
                if self.token == ",":
                    self.take()
            self.take("}")
        return found

    def _matching(self, name: str, found: Vector) -> Vector:
        label, sign, text = self.take(), self.take(), self.take().strip('"').replace("$broker", ".*")
        if any(label not in dict(labels) for labels in found):
            raise QueryError(f"{name} has no label {label}")
        if sign not in ("=", "=~"):
            raise QueryError(f"{sign} is not known")
        pattern = re.compile(text if sign == "=~" else re.escape(text))
        return {labels: value for labels, value in found.items() if pattern.fullmatch(dict(labels)[label])}


def _tokens(query: str) -> list[str]:
    tokens, position = [], 0
    while position < len(query.rstrip()):
        match = _TOKEN.match(query, position)
        if match is None:
            raise QueryError(f"{query[position:]!r} cannot be read")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


def _vector(value: Vector | float) -> Vector:
    if isinstance(value, float):
        raise QueryError("a number is used instead of samples")
    return value


def _combined(apply: Callable[[float, float], float], left: Vector | float, right: Vector | float) -> Vector | float:
    if isinstance(left, float):
        return {labels: apply(left, value) for labels, value in _vector(right).items()}
    if isinstance(right, float):
        return {labels: apply(value, right) for labels, value in left.items()}
    return {k: apply(left[k], right[k] or NEVER_REPEATED) for k in left if k in right}


def _quantile(quantile: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in buckets.items():
        bound = dict(labels).get("le")
        if bound is None:
            raise QueryError("histogram_quantile needs the label le")
        rest = tuple((n, v) for n, v in labels if n != "le")
        groups.setdefault(rest, []).append((float(bound), value))
    found = {}
    for labels, rows in groups.items():
        rows.sort()
        total = rows[-1][1]
        if total > 0:
            found[labels] = next(bound for bound, below in rows if below >= quantile * total)
    return found
