"""Claims of tokens: their types, and Kafka's rules for them."""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from json import loads
from typing import Any

from kreplica.security.sasl.bearer_token import TOKEN_CHARACTERS_MAX, InvalidToken

_SECTIONS = re.compile(r"([A-Za-z0-9_-]+={0,2})\.([A-Za-z0-9_-]+={0,2})\.([A-Za-z0-9_-]*={0,2})")

MS_MAX = 2**53
"""Upper limit of times in claims, in milliseconds since 1970; later times are capped at it."""

Claims = Mapping[str, Any]


def decode_sections(token: str) -> tuple[Claims, Claims, str]:
    """Return the header, the claims and the encoded signature of a token, without verification.

    :raise InvalidToken: the token does not consist of three sections, or one of them is malformed.
    """
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise InvalidToken(f"the token is longer than {TOKEN_CHARACTERS_MAX} characters")
    match = _SECTIONS.fullmatch(token)
    if match is None:
        raise InvalidToken("the token does not have three sections in Base64 (header, claims and signature)")
    header, claims, signature = match.groups()
    return decode_object(header, "header"), decode_object(claims, "claims"), signature


def decode_object(section: str, name: str) -> Claims:
    """Return the JSON object in a section of a token.

    :param name: name of the section, for the error.
    :raise InvalidToken: the section is malformed.
    """
    try:
        value = loads(urlsafe_b64decode(section.rstrip("=") + "=" * (-len(section.rstrip("=")) % 4)))
    except (Base64Error, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidToken(f"the {name} of the token is not a JSON object in Base64")
    return value


def text_claim(claims: Claims, name: str) -> str:
    """Return a claim that must be a string.

    :raise InvalidToken: the claim is missing, blank or not a string.
    """
    value = claims.get(name)
    # JSON can contain half of a surrogate pair, which cannot be encoded as UTF-8.
    if not isinstance(value, str) or not value.strip() or value.encode("utf-8", "replace").decode() != value:
        raise InvalidToken(f"the claim {name} is missing, or is not a string")
    return value.strip()


def time_claim(claims: Claims, name: str) -> int | None:
    """Return a claim that must be a time, in milliseconds since 1970; None if it is missing.

    :raise InvalidToken: the claim is not a number of seconds, or is negative.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidToken(f"the claim {name} is not a number of seconds since 1970")
    return min(int(min(value, MS_MAX) * 1000), MS_MAX)


def required_time(claims: Claims, name: str) -> int:
    """Return a required time, in milliseconds since 1970.

    :raise InvalidToken: the claim is missing or malformed.
    """
    value = time_claim(claims, name)
    if value is None:
        raise InvalidToken(f"the claim {name} is missing")
    return value


def scope_claim(claims: Claims, name: str) -> frozenset[str]:
    """Return the scope; empty if the token has none.

    :raise InvalidToken: the scope contains a value that is not a string, is blank or is repeated.
    """
    value = claims.get(name)
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(each, str) and each.strip() for each in values):
        raise InvalidToken(f"the claim {name} contains a value that is blank or not a string")
    stripped = [each.strip() for each in values]
    if len(set(stripped)) != len(stripped):
        raise InvalidToken(f"the claim {name} contains a value twice")
    return frozenset(stripped)
