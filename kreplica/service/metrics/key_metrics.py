"""Metrics of the keys that verify bearer tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind

if TYPE_CHECKING:
    from kreplica.security.oauth.key_source import KeySource


def key_families(sources: Collection[KeySource]) -> Iterator[Family]:
    """Yield the number of keys from each authorization server, and the number of failures to read them."""
    keys = [Sample((source.place,), float(len(source.keys.keys))) for source in sources]
    failures = [Sample((source.place,), float(source.failures)) for source in sources]
    text = "Keys that verify bearer tokens; without keys, all tokens are rejected."
    yield Family("kreplica_oauth_keys", Kind.GAUGE, text, ("url",), keys)
    text = "Consecutive failures to read the keys that verify bearer tokens; the last keys remain valid."
    yield Family("kreplica_oauth_key_failures", Kind.GAUGE, text, ("url",), failures)
